"""The dead-letter desk: consumes `harebell.dead` and `harebell.dlq`, publishes replays and answers.

Owns `dead_letters`, `failure_groups`, `replays`, `replay_jobs` and `replay_items`.
"""
