"""The SQL of the ticker. Each module names its statements in a constant `STATEMENTS`.

* command_results   the stored responses and the bulk operations
* schedules         loading schedules with their locked runs, and writing their states
* schedule_counts   the number of live schedules of a tenant, for its quota
* versions          immutable versions with their cache
* save              writing a unit of work and its planning steps
* breakers          the recorded and forced states of breakers
"""
