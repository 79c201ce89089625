"""Only the modules of the topology contain the names of exchanges and queues."""

from typing import Final

from tests.architecture.source_tree import listing, source_modules

from harebell.messaging.topology.bus import SYSTEM

HOMES: Final = frozenset({"harebell.contract.amqp_names", "harebell.messaging.topology.bus"})
EXCHANGES: Final = frozenset(exchange.name for exchange in SYSTEM.exchanges)
NAMES: Final = EXCHANGES | {queue.name for queue in SYSTEM.queues}
PREFIXES: Final = tuple(f"{name}." for name in EXCHANGES)  # such as harebell.delay.001500


def is_amqp_name(text: str) -> bool:
    """Return whether the text is the name of an exchange or of a queue."""
    return text in NAMES or text.startswith(PREFIXES)


def test_string_is_no_amqp_name_outside_the_topology() -> None:
    faults = [
        f"{module}:{string.lineno}: {string.value!r}"
        for module in source_modules()
        if module.name not in HOMES
        for string in module.strings()
        if is_amqp_name(str(string.value))
    ]

    assert not faults, listing(faults)


def test_queue_with_a_time_is_an_amqp_name() -> None:
    assert is_amqp_name("harebell.delay.001500")
    assert not is_amqp_name("harebell.delays")
