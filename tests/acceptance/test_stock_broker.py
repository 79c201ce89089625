"""The plugins, exchange types and queue types that Harebell needs of RabbitMQ."""

from urllib.parse import quote, urlsplit

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack, Tenant
from tests.rig.servers import Servers

pytestmark = [pytest.mark.broker, pytest.mark.postgres, pytest.mark.broker_version]

# Plugins of the RabbitMQ distribution. The last two are parts of the first.
DISTRIBUTED_PLUGINS = {
    "rabbitmq_management",
    "rabbitmq_prometheus",
    "rabbitmq_management_agent",
    "rabbitmq_web_dispatch",
}
STANDARD_EXCHANGE_TYPES = {"direct", "fanout", "headers", "topic"}
STANDARD_QUEUE_TYPES = {"classic", "quorum", "stream"}


@pytest.mark.long
@pytest.mark.requirement("S61")
async def test_delayed_run_and_its_retry_need_no_plugin_of_a_third_party(
    servers: Servers, running_stack: Stack, tenant: Tenant, target: Target
) -> None:
    if servers.private is None:
        pytest.skip("The test reads the plugins of a private broker.")
    retry = {"max_attempts": 2, "backoff": {"base": "4s", "jitter": "none"}}
    await tenant.put("delayed", {"after": "4s"}, target.http("delayed", fail=1), retry=retry)

    await tenant.until_runs(1, "succeeded")

    host = quote(urlsplit(running_stack.amqp_url).path.removeprefix("/"), safe="")
    (node,) = servers.management("GET", "nodes")
    exchanges = servers.management("GET", f"exchanges/{host}")
    queues = servers.management("GET", f"queues/{host}")
    assert len(target.calls("delayed")) == 2
    assert set(node["enabled_plugins"]) <= DISTRIBUTED_PLUGINS
    assert {each["type"] for each in exchanges} <= STANDARD_EXCHANGE_TYPES
    assert {each["type"] for each in queues} <= STANDARD_QUEUE_TYPES
    assert sum(each["name"].startswith("harebell.") for each in exchanges) >= 9
