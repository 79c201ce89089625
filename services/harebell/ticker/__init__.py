"""The ticker applies commands, owns the schedules, stages their runs and recovers lost runs.

* service         the loops and consumers of one process
* commands        the application of accepted commands
* model           the pure rules: versions, units of work, planning
* store           the SQL of schedules, versions, command results and breakers
* plan_writer     writing the changes of a batch, the runs of a plan and the states after them
* stager          the passes that stage runs within the horizon, and their planning budget
* next_times      the earliest next time, above a low-water mark
* overdue_schedules  the search for overdue schedules, without the mark
* read_pauses     the pauses between reads that a held snapshot makes slow
* stage_spans     the spans of staged runs
* events          events and stop requests after a commit
* reconciler      schedules whose next step depends on the outcomes of their runs
* completions     events of schedules whose last runs end after the end of their planning
* recovery        lost tickets, expired leases, stalled overlap slots
* reports         reports of workers about delegated runs
* breakers        the recorded and forced states of breakers
* backlog         metrics of due runs that have not started
* planned_runs    metrics of the runs that will be due soon
* held_snapshots  metrics of the snapshots that prevent the cleanup of dead rows
* maintenance     partitions, expired rate limits, changes of the time zone database
* retention       the removal and the archive of what has reached its age
* metrics         the metrics of the ticker
"""
