"""Other schedulers under the same workloads, configured as their documentation recommends.

* peer     the processes of a peer
* sample   the measured loads
* celery   Celery on the private RabbitMQ
* bullmq   BullMQ on a private Redis
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.benchmarks.peers import bullmq, celery
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.rig import Rig

PEERS: Final[Mapping[str, Callable[[Path, Rig], AbstractContextManager[Peer]]]] = {
    "celery": celery.open_peer,
    "celery-results": celery.open_peer_with_results,
    "bullmq": bullmq.open_peer,
}
