"""Other schedulers, set up for speed as their documentation says, under the workloads of ours."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.benchmarks.peers import bullmq, celery
from tests.benchmarks.peers.peer import Peer
from tests.benchmarks.rig import Rig

PEERS: Final[Mapping[str, Callable[[Path, Rig], AbstractContextManager[Peer]]]] = {
    "celery": celery.opened,
    "bullmq": bullmq.opened,
}
