"""Metrics of every service: the build, the readiness checks and the commands.

Names use base units, and no label is an id.
"""

from typing import Final

from prometheus_client import Counter, Gauge, Info

from harebell.contract import __version__

BUILD_INFO: Final = Info("harebell_build", "Version of Harebell that this service runs.")
BUILD_INFO.info({"version": __version__})
READY: Final = Gauge(
    "harebell_ready",
    "Readiness of one connection or consumer, 1 if it is ready and 0 if not.",
    ["check"],
)
TZDATA_OUTDATED: Final = Gauge(
    "harebell_tzdata_outdated",
    "Age of the time zone data of this version, 1 if they are old and 0 if not.",
    ["version"],
)
COMMANDS: Final = Counter(
    "harebell_commands_total",
    "Commands, counted when intake checks them and when the ticker applies them.",
    ["verb", "result"],
)
LOOP_FAILURES: Final = Counter(
    "harebell_loop_failures_total",
    "Failures of a background loop that no rule foresaw, after which the loop started again.",
    ["loop"],
)
TENANT_POLICIES_VALID: Final = Gauge(
    "harebell_tenant_policies_valid",
    "Validity of the newest tenant policies, 1 if they are in force and 0 if older ones are.",
)
POLICY_REFUSALS: Final = Counter(
    "harebell_policy_refusals_total",
    "Commands and attempts that the tenant policy refused, counted at each refusal.",
    ["code", "rule"],
)
