"""The execution of claimed runs: starts, attempts, leases, stop requests and delays.

* claimed_runs      the registry of the runs that this executor has claimed
* starter           the start of each run at its due time, within the slots of its lane
* attempts          the last checks before a call, the call, its span and its outcome
* timers            timers that wake a lane
* start_guard       blocking work between two starts
* bulkheads         the runs that a lane may claim, and the slots of one target and one tenant
* leases            renewals of leases, and the control queue
* delegations       leases that belong to workers
* rate_limiter      reservations and admissions of rate limited runs
* blackouts         runs that wait for the end of a blackout
* stop_requests     cancellation of runs on request
* unstarted_runs    claims that an executor returns when it stops
"""
