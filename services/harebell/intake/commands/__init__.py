"""The path of a command through intake: parsed, checked, and published for its service.

* handler          batches of deliveries in, outcomes and spans out
* check            one message in, its checked items with their ids and rejections out (pure)
* rules            rules of commands, definitions and patches besides their types (pure)
* quotas           the quotas of changes per second and of backfills (pure)
* tenant_queues    the tenants whose intake queues may exist
* publish          the messages that intake publishes
"""
