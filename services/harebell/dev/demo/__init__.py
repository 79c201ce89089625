"""`make demo`: schedules of every kind on a local stack, and the verdict about their runs.

* schedules    the schedules of the demo
* script       the steps of the demo
* commands     `amqp-publish` and the `harebell` command, in their own processes
* sources      the ledger and the target, as the demo reads them
* target       the web service that the runs call
* table        the runs, shown live
* narration    headings, sentences and commands
* verdict      the comparison of the expected runs with the ledger and the target
"""
