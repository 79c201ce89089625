"""The execution of claimed runs: leases, starts, stop requests and rate limits.

* claimed_runs      the registry of the runs that this executor has claimed
* starter           the start of each run at its due time, within the slots of its lane
* timers            timers that wake a lane
* start_guard       blocking work between two starts
* target_bulkhead   the share of the slots that one target may use
* tenant_bulkhead   the share of the slots that one tenant may use, and its quota
* leases            renewals of leases, and the control queue
* rate_limiter      reservations and admissions of rate limited runs
* stop_requests     cancellation of runs on request
"""
