"""The executor claims runs, starts each one at its due time and records the outcome.

* service     the wiring of the executor and its shutdown
* receiver    the first step of a lane: work batches
* claiming    claims of rows and overlap slots
* running     starts, attempts, leases, stop requests and rate limits
* targets     calls of HTTP, AMQP and task targets
* completer   records of attempts, next steps and events
* model       claimed runs as pure values and rules
* tasks       the programming interface for task authors
* metrics     metrics of this service
"""
