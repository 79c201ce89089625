"""Pure values and rules of the ticker. These modules do no I/O.

* version           one version of a schedule, its calendars and its handover
* unit_of_work      the schedules and locked runs of a batch, with every change
* request           a command with its context, its schedule and its response
* outcomes          the effect of ended runs on their schedule
* planning          the runs to stage up to the horizon
* planning_window   the planning by one version, and the cursor after a pause or a change
* pending_versions  the early runs of pending versions, and their activation
* counted_runs      the runs that count, and those that have ended, after a pass
* report            the report of a worker and the completion of its delegated run
* run_rows          the rows of runs and their tickets
* retention         the rows that the ticker may remove
"""
