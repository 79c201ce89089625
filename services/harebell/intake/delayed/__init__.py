"""The path of a delayed message through intake: a message in, a put of a one-shot schedule out.

* handler      batches of deliveries in, outcomes out
* message      one message in, its `schedule.put` out (pure)
* repeats      the equal messages that intake has accepted
"""
