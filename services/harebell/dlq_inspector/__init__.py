"""The dlq_inspector stores dead letters, answers queries about them and replays them.

Its service role owns `dead_letters`, `failure_groups`, `replays`, `replay_jobs`, `replay_items`,
`alerts` and `alert_posts`.

* __main__        the entry point of the process
* service         the consumers and the background loops
* ingest          the storage of each message of the queue `harebell.dead`
* parked          the messages of the queue `harebell.parked`
* queries         the responses to queries
* commands        the handler of each command
* replay          the replay of dead letters in one transaction
* edit            the edited copy of a dead letter
* import_letters  the import of exported dead letters
* replay_worker   replay jobs: their start, their changes of state and their batches
* alert_monitor   alert events for many dead letters and for stalled replay jobs
* webhook         the delivery of alerts to a chat
* maintenance     the deletion of old and of surplus dead letters
* metrics         the metrics of the service
* model           pure rules
* store           SQL statements
"""
