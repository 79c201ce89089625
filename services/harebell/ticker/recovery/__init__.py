"""Recovery of runs whose ticket is lost, whose lease has expired or whose overlap slot stalled.

* executor_liveness   queues of executors, as the broker reports them
* rescuer             the loops that recover lost tickets and expired leases
* search_window       the due times and partitions that a search visits
* stalled_labels      waiting runs whose concurrency label has a free slot
* stalled_overlaps    waiting runs that no ended run has woken
"""
