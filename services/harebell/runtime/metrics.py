"""Metrics of every service: the build, the readiness checks and the commands.

Names use base units, and no label is an id.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Info

from harebell.contract import __version__

BUILD_INFO: Final = Info("harebell_build", "Version of Harebell that this process runs.")
BUILD_INFO.info({"version": __version__})
READY: Final = Gauge(
    "harebell_ready", "State of each readiness check: 1 if it passes, 0 if it fails.", ["check"]
)
COMMANDS: Final = Counter(
    "harebell_commands_total",
    "Commands, counted when a service accepts, applies, repeats or rejects one.",
    ["verb", "result"],
)
