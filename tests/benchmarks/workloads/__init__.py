"""What is measured, by the name that `make bench ONLY=...` takes."""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale
from tests.benchmarks.workloads import accepting, calling, flooding, resting, stored, waves

Workload = Callable[[Rig, Report, Scale], Coroutine[Any, Any, None]]

WORKLOADS: Final[Mapping[str, Workload]] = {
    "light": waves.light,
    # before hundreds of thousands are loaded, which the database then vacuums for minutes
    "accept": accepting.accept,
    "immediate": accepting.immediate,
    "stampede": waves.stampede,
    "sustained": waves.sustained,
    "recurring": waves.recurring,
    "users": waves.users,
    "retries": waves.retries,
    "http": calling.http,
    "flood": flooding.flood,
    "roles": waves.roles,
    "idle": resting.idle,
    "cold": resting.cold,
    "memory": resting.memory,
    "stored": stored.stored,
}
