"""The commands of `harebell dlq`.

* dead_letters     list, get, discard: single dead letters
* filters          options that select dead letters
* groups           `dlq groups`: list, note, mute, archive, reopen
* edit             edit: another target for a dead run
* replay           replay: selected dead letters at once, or a replay job
* replays          `dlq replays`: list, get, pause, resume, abort
* export_import    export and import as JSON lines
* watch            watch: new dead letters as they arrive
* output           results of dead letter commands
* replay_progress  the progress of a replay job
"""
