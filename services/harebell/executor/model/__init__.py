"""The claimed runs of an executor as pure values and rules.

* throughput      the duration of attempts, and the number of runs that a lane may claim
* priority_queue  a queue in the order of starts
* claimed_run     one claim of a run, and the age of its lease
* start_queue     claimed runs until their start, and deferred runs
* probes          the tickets that probe a half open breaker
* completion      the next step after an attempt, and the record of the attempt
"""
