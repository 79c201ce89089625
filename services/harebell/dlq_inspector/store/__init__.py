"""The statements of the dlq_inspector, which owns its tables.

* alert_posts   the alerts that the webhook has not confirmed
* dead_letters  the insertion, the lock, the replay, the discard and the edit of dead letters
* groups        failure groups: their counts, their list and their changes
* queries       the lists and the details of dead letters and replay jobs
* replay_waits  the runs and the breakers for which a replay job waits
* replay_jobs   the fixed set of a replay job, its steps and its counts
* retention     the deletion of old and of surplus dead letters
"""
