"""The dead-letter desk: consumes `harebell.dead` and `harebell.dlq`, publishes replays and answers.

Alerts too, and posts those of `harebell.alerts` to a webhook. Owns `dead_letters`,
`failure_groups`, `replays`, `replay_jobs`, `replay_items` and `alerts`.
"""
