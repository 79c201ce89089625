"""The SQL of the ticker. Each module names its statements in a constant `STATEMENTS`.

* command_results   the stored responses and the bulk operations
* schedules         loading schedules with their locked runs, and writing their states
* schedule_counts   the number of live schedules of a tenant, for its quota
* versions          immutable versions with their cache
* planned_runs      staged runs, and schedules with a time to plan
* retention         the removal of runs, in batches and by day
* expired_rows      the removal of versions, ended schedules and stored responses
* breakers          the recorded and forced states of breakers
"""
