"""Pure rules that more than one package uses: no I/O, no clock, no randomness.

* run_states           states, reasons, transitions, tokens and start ranks of runs, the status
                       of schedules
* cron                 cron expressions in their time zones
* recurrence           the next scheduled time of a version, by the calendars that it contains
* calendars            decisions of calendars about scheduled times, days and starts
* moved_times          times that calendars move to another day
* validation           checks of `when` and of calendars beyond their shape
* default_schedule     the timing of schedules without `when`
* planner              the runs to stage
* versions             versions and the time in which each is in force
* timetables           the due times of versions, computed once for many schedules
* planned_times        the times that a schedule requires and that have no run yet
* preview              the next runs of a schedule, with notes
* overlap              the policy for runs of one schedule at the same time
* concurrency          runs of one label at once, and the line of the waiting ones
* rate_limit           reservations and starts under a rate limit
* retry                the next step after a failed attempt
* trace_relation       the relation of an attempt to the trace of its command
* time_text            times in sentences for people
* reason_text          the text of each reason
* sender               the sender of a command or a query, and the codes of its refusal
* reply_queue          the queues to which replies may go
* event_budget         the number of rejection events that a tenant may cause
* progress             the age of a report of progress, and the limit of its events
* webhook_signature    keys, signatures and verification of Standard Webhooks
* url_policy           the addresses that HTTP targets may reach
* tenant_policy        the tenant policies of an installation
* usage_counts         the counts of what tenants did and of what was refused
* target_check         the rules of the tenant policy for pools, priorities, targets and secrets
* page_cursor          the position of a page in a list
"""
