"""The claimed runs of an executor as pure values and rules.

* priority_queue  a queue in the order of starts
* claimed_run     one claim of a run, the age of its lease, and the claims that probe a breaker
* start_queue     claimed runs until their start, and deferred runs
* completion      the next step after an attempt, and the record of the attempt
"""
