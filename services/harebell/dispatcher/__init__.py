"""The dispatcher queues tickets until their lead and then releases them to the work queues.

The dispatcher stores nothing: an unreleased ticket stays unacknowledged in RabbitMQ.

* service      consumption of ticket batches and the periodic release
* release      the release queue, the gates, the forwarder and pending acknowledgements
* breakers     circuit breakers of downstreams, as a gate
* metrics      metrics of this service
"""
