"""The rules of dead letters: pure functions and values without I/O.

* dead_letter   dead letters from messages of the queue `harebell.dead` and from imports
* owner         the tenants to which the parts of a dead message belong
* dead_command  the command of a dead message, which a replay publishes again
* imports       the id of an imported dead letter
* fingerprint   the failure group of a dead letter
* results       the result of a command for each dead letter and failure group
* replay_job    the next step of a replay job
* replay_wait   the wait of a replay job, as a code and as sentences
* alerts        alert events for many dead letters and for stalled replay jobs
* views         the rows of query responses
"""
