"""Circuit breakers: they defer the tickets of a downstream after too many failures.

* sync         outcomes and breaker events from RabbitMQ, and the events of this dispatcher
* registry     all breakers of a dispatcher, as one gate
* breaker      the state machine of one breaker
* sentences    the transitions of a breaker in words
"""
