"""Pure rules that more than one package uses: no I/O, no clock, no randomness.

* run_states           states, reasons and transitions of runs and schedules
* schedule_status      the state of a schedule as users see it, its result and its counts
* cron                 cron expressions in their time zones
* recurrence           the next scheduled time of a version
* validation           checks of `when` beyond its shape
* default_schedule     the timing of schedules without `when`
* planner              the runs to stage
* versions             versions and the time in which each is in force
* preview              the next runs of a schedule, with notes
* overlap              the policy for runs of one schedule at the same time
* rate_limit           reservations and starts under a rate limit
* start_rank           the order in which due runs start
* retry                the next step after a failed attempt
* time_text            times in sentences for people
* reason_text          the text of each reason
* sender               the sender of a command or a query, and the codes of its refusal
* reply_queue          the queues to which replies may go
* event_budget         the number of rejection events that a tenant may cause
* webhook_signature    keys, signatures and verification of Standard Webhooks
* url_policy           the addresses that HTTP targets may reach
* literal_secrets      secrets in targets: refused values, warnings and policies
* tenant_policy        the tenant policies of an installation
* target_check         the rules of the tenant policy for pools, priorities and targets
* page_cursor          the position of a page in a list
"""
