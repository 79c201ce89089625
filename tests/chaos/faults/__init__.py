"""Faults of the matrix, which an import of this package registers.

* registry          the rows and properties of all faults
* processes         rows 1 to 8: services killed, frozen or stopped
* dead_letters      row 9: the dlq_inspector killed during a replay
* servers           rows 10, 14, 15 and 22: the broker and the database unavailable
* clusters          rows 11 to 13: nodes of a cluster lost
* promotions        row 16: a standby promoted
* links             rows 17 to 19: connections damaged
* clocks            row 20: clocks that jump
* tzdata            row 21: changed time zone data
* poison            row 24: a task that kills executors
* messages          rows 25 to 28: invalid, forged, repeated and reordered messages
* queues            row 29: queues, exchanges and bindings purged or deleted
* delays            row 30: retries with different delays
* broker_versions   row 31: tickets of another release during an upgrade
* load_spikes       rows 32 and 33: many runs at once, and changes at the due time
* false_confirms    row 36: messages confirmed and lost
"""

from tests.chaos.faults import (
    broker_versions,
    clocks,
    clusters,
    dead_letters,
    delays,
    false_confirms,
    links,
    load_spikes,
    messages,
    poison,
    processes,
    promotions,
    queues,
    servers,
    tzdata,
)
from tests.chaos.faults.registry import Fault, all_faults, select_faults

__all__ = [
    "Fault",
    "all_faults",
    "broker_versions",
    "clocks",
    "clusters",
    "dead_letters",
    "delays",
    "false_confirms",
    "links",
    "load_spikes",
    "messages",
    "poison",
    "processes",
    "promotions",
    "queues",
    "select_faults",
    "servers",
    "tzdata",
]
