"""The workloads of `make bench ONLY=...`, by name.

* stampede     runs with one due time or a constant rate, retries, several instances
* accept       schedules that clients send
* http_calls   runs with HTTP targets
* delegated    runs that a worker completes
* flood        high runs during a flood of low runs
* tenants      runs of a tenant during the flood of another tenant
* pinned       recurring runs beside a held snapshot
* traces       the CPU of spans and log lines of runs
* commands     the CPU of one command of `harebell`
* idle         idle services, a cold start and memory
* stored       a million stored schedules
"""

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

from tests.benchmarks.figures import Report
from tests.benchmarks.rig import Rig, Scale
from tests.benchmarks.workloads import (
    accept,
    boundary,
    commands,
    delayed,
    delegated,
    flood,
    http_calls,
    idle,
    pinned,
    stampede,
    stored,
    tenants,
    traces,
)

Workload = Callable[[Rig, Report, Scale], Coroutine[Any, Any, None]]

WORKLOADS: Final[Mapping[str, Workload]] = {
    "light": stampede.light,
    # before hundreds of thousands are loaded, which the database then vacuums for minutes
    "accept": accept.accept,
    "immediate": accept.immediate,
    "immediate-bulk": accept.immediate_bulk,
    "now-alone": accept.now_alone,
    "stampede": stampede.stampede,
    "sustained": stampede.sustained,
    "recurring": stampede.recurring,
    "users": stampede.users,
    "retries": stampede.retries,
    "http": http_calls.http,
    "worker": delegated.worker,
    "delayed": delayed.delayed,
    "flood": flood.flood,
    "tenants": tenants.tenants,
    "boundary": boundary.boundary,
    "pinned": pinned.pinned,
    "traces": traces.traces,
    "roles": stampede.roles,
    "commands": commands.commands,
    "idle": idle.idle,
    "cold": idle.cold,
    "memory": idle.memory,
    "stored": stored.stored,
}
