"""Names of exchanges and queues stand where the topology is described, and nowhere else."""

from typing import Final

from tests.architecture.sources import OURS

from harebell.messaging.topology.bus import SYSTEM

HOMES: Final = {"harebell.contract.names", "harebell.kernel.bus"}
EXCHANGES: Final = {exchange.name for exchange in SYSTEM.exchanges}
TAKEN: Final = EXCHANGES | {queue.name for queue in SYSTEM.queues}
BEGINNINGS: Final = tuple(f"{name}." for name in EXCHANGES)  # harebell.delay.1500


def test_no_name_on_the_bus_is_written_out() -> None:
    written = {
        f"{module}: {text}"
        for module in OURS
        if module.name not in HOMES
        for text in module.strings()
        if text in TAKEN or text.startswith(BEGINNINGS)
    }

    assert written == set()
