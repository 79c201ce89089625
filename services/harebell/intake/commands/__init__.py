"""The path of a command through intake: parsed, checked, and published for its service.

* handler          batches of deliveries in, outcomes out
* check            one message in, its checked items and rejections out (pure)
* request_ids      the request id and the schedule id of a command (pure)
* rules            rules of each command besides its types (pure)
* definition       rules of definitions and patches besides their types (pure)
* quotas           the quotas of changes per second and of backfills (pure)
* tenant_queues    the tenants whose intake queues may exist
* window           the bytes of each tenant that the ticker has not applied yet
* command_span     the span of a command message
* publish          the messages that intake publishes
"""
