"""The application of accepted commands, from a batch of deliveries to replies and events.

* apply                 the transaction of a batch, in the order of its steps
* batch                 deliveries as batches of commands
* handlers              the handler of each command
* put_patch             `schedule.put` and `schedule.patch`
* changes               a new version at once, later, or too late
* new_versions          the creation of a version, and what puts it in force
* replacements          the runs and the cursor when a version replaces the one in force
* ended                 `schedule.delete`, and the rejection and the revival of ended schedules
* pause_resume_cancel   `schedule.pause`, `schedule.resume` and `schedule.cancel`
* manual_runs           `schedule.trigger`, `schedule.backfill`, `schedule.skip` and run commands
* calendars             `calendar.put` and `calendar.delete`
* bulk                  one command to many schedules
* events                stop requests, replies, events and dead letters after the commit
"""
