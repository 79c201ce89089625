"""Each threshold of the alert rules, just below and just above.

A threshold is a number that a rule compares with, the length of a range, the time after `for`,
a quantile, a bucket, or the absence of a series.
"""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
import pytest
from tests.architecture.test_alerts import NAMES, RULES

from harebell.audit.model.state_checks import STATES_WITHOUT_ATTEMPT, STATES_WITHOUT_SUCCESS
from harebell.domain.run_states import ENDED, Reason, RunState

THRESHOLD: Final = re.compile(
    r"(?P<comparison>(?:[=!<>]=|[<>])\s*[\d.]+)|\[(?P<range>\w+)\]|(?P<absent>absent)\("
    r"|histogram_quantile\((?P<quantile>[\d.]+)|le=\"(?P<bucket>[\d.]+)\""
)
# Seconds between two samples and between two evaluations, one if the rule is not listed.
TICKS: Final = {
    "HarebellNothingExecuted": 20,
    "HarebellStartsLateHour": 30,
    "HarebellStartsLateSixHours": 180,
    "HarebellStartsLateDay": 720,
    "HarebellStartsLateThreeDays": 2160,
}

STAGING: Final = "harebell_last_staging_pass_timestamp_seconds"
RETENTION: Final = "harebell_last_retention_pass_timestamp_seconds"
STARTS: Final = "harebell_start_lateness_seconds_count"
OLDEST: Final = "harebell_oldest_due_age_seconds"
OVERDUE: Final = "harebell_overdue_schedules"
BACKLOG: Final = 'harebell_due_backlog_runs{pool="default",lane="normal"}'
MISSED: Final = 'harebell_runs_total{state="skipped",reason="missed"}'
DEAD: Final = 'harebell_dead_letters_total{kind="run"}'
OPEN: Final = "harebell_dead_letters_open"
PARKED: Final = "harebell_dead_letters_parked"
STALLED: Final = "harebell_replay_jobs_stalled"
FAILED: Final = 'harebell_attempts_total{outcome="failed"}'
BREAKER: Final = 'harebell_breaker_open{downstream="http:acme.example"}'
STATEMENTS: Final = "harebell_database_statement_seconds_count"
SNAPSHOT: Final = (
    'harebell_held_snapshot_age_seconds{kind="session",pid="7",application_name="psql",user="ann"}'
)
ORPHANS: Final = "harebell_orphan_tickets_total"
POLICIES: Final = "harebell_tenant_policies_valid"
FINDINGS: Final = 'harebell_audit_findings{kind="missing"}'
HEARTBEATS: Final = "harebell_audit_missed_heartbeats"
AUDITED: Final = "harebell_audit_timestamp_seconds"
AUDIT_SUCCESS: Final = "harebell_audit_success"
LOOP_FAILURES: Final = 'harebell_loop_failures_total{loop="reconciler"}'
FOREIGN: Final = 'harebell_refused_messages_total{code="foreign_route"}'
# The reasons of runs that did not run because a person changed, paused or ended something.
REQUESTED: Final = {Reason.SUPERSEDED, Reason.PAUSED, Reason.CANCELLED, Reason.MANUAL}
STEP_AT_100: Final = "0x99 20x1000"  # a counter that increases once, by 20


class Probe(NamedTuple):
    """The values of series, one for each tick, and the tick at which the rule is evaluated."""

    at: int
    series: dict[str, str]


class Pair(NamedTuple):
    """Two probes on the two sides of a threshold."""

    inactive: Probe
    firing: Probe


def statements_up_to(bucket: str) -> str:
    return f'harebell_database_statement_seconds_bucket{{le="{bucket}"}}'


def runs_ended(state: str, reason: str | None) -> str:
    return f'harebell_runs_total{{state="{state}",reason="{reason}"}}'


def changes_up_to(bucket: str) -> str:
    return f'harebell_change_latency_seconds_bucket{{verb="schedule.put",le="{bucket}"}}'


def gauge(name: str, below: float, above: float, *, at: int) -> Pair:
    return Pair(Probe(at, {name: f"{below}x{at}"}), Probe(at, {name: f"{above}x{at}"}))


def ramp(name: str, below: float, above: float, *, seconds: int) -> Pair:
    """Return a counter that increases evenly by `below` or `above` within a range."""
    at = seconds + 300
    return Pair(
        Probe(at, {name: f"0+{below / seconds}x{at}"}),
        Probe(at, {name: f"0+{above / seconds}x{at}"}),
    )


def until(last: int, series: dict[str, str]) -> Pair:
    """Return series that cause the alert up to the tick `last`, and not at the next one."""
    return Pair(Probe(last + 1, series), Probe(last, series))


def starting_at(first: int, series: dict[str, str]) -> Pair:
    """Return series that cause the alert at the tick `first`, and not at the one before."""
    return Pair(Probe(first - 1, series), Probe(first, series))


def changes(**buckets: str) -> dict[str, str]:
    """Return the series of buckets such as `le_2_0`."""
    names = {name.removeprefix("le_").replace("_", "."): each for name, each in buckets.items()}
    return {changes_up_to("+Inf" if name == "inf" else name): each for name, each in names.items()}


WITHIN_1_S: Final = 'harebell_start_lateness_seconds_bucket{lane="normal",le="1.0"}'
STARTS_PER_TICK: Final = 100_000
SHORT: Final = 10  # ticks of the short window of an objective
LONG: Final = 12 * SHORT  # ticks of its long window


def sums(increases: Iterable[float]) -> str:
    return " ".join(f"{total:.0f}" for total in accumulate(increases))


def late_starts(shares: Sequence[float], *, burst_at: int | None = None) -> dict[str, str]:
    """Return the starts of each tick, with the share that is late.

    At the tick `burst_at`, as many starts as in a thousand other ticks are late.
    """
    starts = [STARTS_PER_TICK] * len(shares)
    in_time = [STARTS_PER_TICK * (1 - share) for share in shares]
    if burst_at is not None:
        starts[burst_at] += 1_000 * STARTS_PER_TICK
    return {STARTS: sums(starts), WITHIN_1_S: sums(in_time)}


def objective(long: str, short: str, share: float) -> dict[str, Pair]:
    """Return the pairs of a rule that compares late starts with all starts in two windows."""
    below, above = 0.98 * share, 1.02 * share
    before = [0.0] * 2 * LONG
    end = len(before) + SHORT - 1

    def long_share(value: float) -> Probe:
        """Let only the short window contain late starts, so that it is above its threshold."""
        return Probe(end, late_starts([*before, *[value * LONG / SHORT] * SHORT]))

    def short_share(value: float) -> Probe:
        """Let half of the starts before the short window be late."""
        return Probe(end, late_starts([*[0.5] * len(before), *[value] * SHORT]))

    of_long = Pair(long_share(below), long_share(above))
    of_short = Pair(short_share(below), short_share(above))
    few_late = [*before, *[2 * share] * SHORT, 2 * share]  # too few for the long window
    leaves_long = until(end, late_starts(few_late, burst_at=end - LONG + 1))
    leaves_short = until(end, late_starts([0.0] * (end + 2), burst_at=end - SHORT + 1))
    half_second = WITHIN_1_S.replace("1.0", "0.5")
    two_seconds = WITHIN_1_S.replace("1.0", "2.0")
    every, no = (sums([each] * (end + 1)) for each in (STARTS_PER_TICK, 0))
    bucket = Pair(
        Probe(end, {STARTS: every, two_seconds: every, WITHIN_1_S: every, half_second: no}),
        Probe(end, {STARTS: every, two_seconds: every, WITHIN_1_S: no, half_second: no}),
    )
    return {
        "bucket 1.0": bucket,
        "bucket 1.0 2": bucket,
        f"[{long}]": leaves_long,
        f"[{long}] 2": leaves_long,
        f"[{short}]": leaves_short,
        f"[{short}] 2": leaves_short,
        f"> {share}": of_long,
        f"> {share} 2": of_short,
    }


NO_START: Final = {STARTS: "5x300", OLDEST: "61x300"}
# The range of the statement rule covers both series: the slow statements are their difference.
FAST_AT_100: Final = {STATEMENTS: "0x99 20x900", statements_up_to("1.0"): "0x99 20x900"}
FAST_AT_100_SLOW_AT_410: Final = FAST_AT_100 | {STATEMENTS: "0x99 20x309 21x500"}

PAIRS: Final[dict[str, dict[str, Pair]]] = {
    "HarebellTickerSilent": {
        "> 60": Pair(Probe(200, {STAGING: "-60+1x300"}), Probe(200, {STAGING: "-61+1x300"})),
        "absent": Pair(Probe(200, {STAGING: "0+1x300"}), Probe(200, {})),
        "for 1m": starting_at(60, {STAGING: "-61+1x300"}),
    },
    "HarebellRetentionStalled": {
        "> 21600": Pair(
            Probe(2000, {RETENTION: "-21600+1x2100"}), Probe(2000, {RETENTION: "-21601+1x2100"})
        ),
        "for 30m": starting_at(1800, {RETENTION: "-21601+1x2100"}),
    },
    "HarebellNothingExecuted": {  # one hour has 180 ticks, and five minutes have 15
        "[1h]": starting_at(100 + 180 + 15, {OLDEST: "61x900", STARTS: STEP_AT_100}),
        "== 0": Pair(Probe(195, NO_START | {STARTS: "5x50 6x300"}), Probe(195, NO_START)),
        "> 60": Pair(Probe(195, NO_START | {OLDEST: "60x900"}), Probe(195, NO_START)),
        "> 0": gauge(OVERDUE, 0, 1, at=20),
        "for 5m": starting_at(15, NO_START),
    },
    "HarebellLaneDeep": {
        "> 1000": gauge(BACKLOG, 1000, 1001, at=200),
        "for 2m": starting_at(120, {BACKLOG: "1001x200"}),
    },
    "HarebellRunsNotRun": {
        "[10m]": until(699, {MISSED: STEP_AT_100}),
        "> 0": Pair(Probe(300, {MISSED: "0x300"}), Probe(300, {MISSED: "0x99 1x300"})),
    },
    "HarebellDeadLetters": {
        "[15m]": until(999, {DEAD: STEP_AT_100}),
        "> 10": ramp(DEAD, 9.9, 10.1, seconds=900),
    },
    "HarebellDeadLettersOpen": {
        "> 10": gauge(OPEN, 10, 11, at=400),
        "for 5m": starting_at(300, {OPEN: "11x400"}),
    },
    "HarebellDeadLettersParked": {"> 0": gauge(PARKED, 0, 1, at=100)},
    "HarebellReplayStalled": {
        "> 0": gauge(STALLED, 0, 1, at=100),
        "for 1m": starting_at(60, {STALLED: "1x100"}),
    },
    "HarebellAttemptsFail": {
        "[5m]": until(399, {FAILED: "0x99 2000x400"}),
        "> 5": ramp(FAILED, 5 * 4.9, 5 * 5.1, seconds=300),
        "for 1m": starting_at(61, {FAILED: "0+100x200"}),
    },
    "HarebellBreakerOpen": {
        "> 0": gauge(BREAKER, 0, 1, at=400),
        "for 5m": starting_at(300, {BREAKER: "1x400"}),
    },
    "HarebellStatementSlow": {
        "[5m]": until(399, {STATEMENTS: STEP_AT_100, statements_up_to("1.0"): "0x900"}),
        "bucket 1.0": Pair(
            Probe(
                400,
                {STATEMENTS: "0+1x400"}
                | dict.fromkeys(map(statements_up_to, ["1.0", "2.5"]), "0+1x400"),
            ),
            Probe(
                400,
                {
                    STATEMENTS: "0+1x400",
                    statements_up_to("1.0"): "0x400",
                    statements_up_to("2.5"): "0+1x400",
                },
            ),
        ),
        "[5m] 2": Pair(Probe(399, FAST_AT_100), Probe(420, FAST_AT_100_SLOW_AT_410)),
        "> 0.5": Pair(
            Probe(400, {STATEMENTS: f"0+{1 + 0.49 / 300}x400", statements_up_to("1.0"): "0+1x400"}),
            Probe(400, {STATEMENTS: f"0+{1 + 0.51 / 300}x400", statements_up_to("1.0"): "0+1x400"}),
        ),
    },
    "HarebellSnapshotHeld": {
        "> 300": gauge(SNAPSHOT, 300, 301, at=200),
        "for 1m": starting_at(60, {SNAPSHOT: "301x200"}),
    },
    "HarebellChangesSlow": {
        "quantile 0.99": Pair(
            Probe(900, changes(le_2_0="0+990.5x900", le_5_0="0+1000x900", le_inf="0+1000x900")),
            Probe(900, changes(le_2_0="0+989.5x900", le_5_0="0+1000x900", le_inf="0+1000x900")),
        ),
        "[10m]": until(699, changes(le_2_0="0x1100", le_5_0=STEP_AT_100, le_inf=STEP_AT_100)),
        # The quantile is 99 % of the only bucket.
        "> 2": Pair(
            Probe(900, changes(le_2_0="0+1x900", le_inf="0+1x900")),
            Probe(900, changes(le_2_05="0+1x900", le_inf="0+1x900")),
        ),
        "for 2m": starting_at(121, changes(le_5_0="0+1x200", le_inf="0+1x200")),
    },
    "HarebellStartsLateHour": objective("1h", "5m", 0.0144),
    "HarebellStartsLateSixHours": objective("6h", "30m", 0.006),
    "HarebellStartsLateDay": objective("1d", "2h", 0.003),
    "HarebellStartsLateThreeDays": objective("3d", "6h", 0.001),
    "HarebellOrphanTickets": {
        "[10m]": until(699, {ORPHANS: STEP_AT_100}),
        "> 0": Pair(Probe(300, {ORPHANS: "0x300"}), Probe(300, {ORPHANS: "0x99 1x300"})),
    },
    "HarebellForeignMessages": {
        "[10m]": until(699, {FOREIGN: STEP_AT_100}),
        "> 0": Pair(Probe(300, {FOREIGN: "0x300"}), Probe(300, {FOREIGN: "0x99 1x300"})),
    },
    "HarebellLoopFailing": {
        "[15m]": until(999, {LOOP_FAILURES: STEP_AT_100}),
        "> 0": Pair(
            Probe(300, {LOOP_FAILURES: "0x300"}), Probe(300, {LOOP_FAILURES: "0x99 1x300"})
        ),
    },
    "HarebellAuditFindings": {
        "> 0": gauge(FINDINGS, 0, 1, at=200),
        "for 2m": starting_at(120, {FINDINGS: "1x200"}),
    },
    "HarebellHeartbeatMissed": {
        "> 0": gauge(HEARTBEATS, 0, 1, at=200),
        "for 2m": starting_at(120, {HEARTBEATS: "1x200"}),
    },
    "HarebellAuditSilent": {
        "> 600": Pair(Probe(400, {AUDITED: "-600+1x500"}), Probe(400, {AUDITED: "-601+1x500"})),
        "< 1": gauge(AUDIT_SUCCESS, 1, 0, at=400),
        "for 5m": starting_at(300, {AUDIT_SUCCESS: "0x400"}),
    },
    "HarebellTenantPoliciesInvalid": {
        "< 1": gauge(POLICIES, 1, 0, at=100),
        "for 1m": starting_at(60, {POLICIES: "0x100"}),
    },
}


def thresholds(rule: dict[str, Any]) -> Iterator[str]:
    """Yield the thresholds of a rule. A repeated one has its number behind it."""
    seen: Counter[str] = Counter()
    for match in THRESHOLD.finditer(rule["expr"]):
        kind, text = str(match.lastgroup), match[str(match.lastgroup)]
        name = {"range": f"[{text}]", "comparison": text, "absent": text}.get(
            kind, f"{kind} {text}"
        )
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} {seen[name]}"
    if "for" in rule:
        yield f"for {rule['for']}"


def probe_test(alert: str, name: str, probes: Sequence[tuple[Probe, bool]]) -> dict[str, Any]:
    """Return the test of promtool that counts the firing alerts of probes with the same series."""
    tick = TICKS.get(alert, 1)
    first, _ = probes[0]
    return {
        "name": name,
        "interval": f"{tick}s",
        "input_series": [{"series": key, "values": each} for key, each in first.series.items()],
        "promql_expr_test": [
            {
                "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                "eval_time": f"{probe.at * tick}s",
                "exp_samples": [{"labels": "{}", "value": 1}] if is_firing else [],
            }
            for probe, is_firing in probes
        ],
    }


def distinct_pairs(alert: str) -> Iterator[tuple[str, Pair]]:
    """Yield each pair once with the thresholds that it is for."""
    for _, group in groupby(PAIRS[alert].items(), key=lambda item: id(item[1])):
        (first, pair), *others = group
        yield ", ".join([first, *(threshold for threshold, _ in others)]), pair


def check_with_promtool(alert: str, tests: list[dict[str, Any]], folder: Path) -> None:
    """Run the tests with only the rule of the alert, because the other rules would cost time."""
    promtool = shutil.which("promtool")
    assert promtool, "The test needs promtool from the Debian package prometheus."
    rule = next(each for each in RULES if each["alert"] == alert)
    # Prometheus would expand each annotation at each tick on which the alert is active.
    plain = {name: each for name, each in rule.items() if name != "annotations"}
    groups = [{"name": "harebell", "rules": [plain]}]
    (folder / "rules.yml").write_bytes(orjson.dumps({"groups": groups}))  # JSON is YAML
    file = folder / "probes.yml"
    interval = f"{TICKS.get(alert, 1)}s"
    content = {"rule_files": ["rules.yml"], "evaluation_interval": interval, "tests": tests}
    file.write_bytes(orjson.dumps(content))

    done = subprocess.run(  # noqa: S603  # the arguments are constants and a path of the test
        [promtool, "test", "rules", str(file)], capture_output=True, text=True, check=False
    )

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.requirement("S116")
@pytest.mark.parametrize("rule", RULES, ids=NAMES)
def test_each_threshold_of_an_alert_rule_has_a_pair_of_probes(rule: dict[str, Any]) -> None:
    found = list(thresholds(rule))

    assert found
    assert sorted(found) == sorted(PAIRS[rule["alert"]])


@pytest.mark.requirement("S116", "S117")
@pytest.mark.parametrize("alert", NAMES)
def test_alert_is_active_just_above_and_inactive_just_below_each_threshold(
    alert: str, tmp_path: Path
) -> None:
    tests = [
        probe_test(alert, threshold, list(probes))
        for threshold, pair in distinct_pairs(alert)
        for _, probes in groupby(
            ((pair.inactive, False), (pair.firing, True)), key=lambda each: each[0].series
        )
    ]
    check_with_promtool(alert, tests, tmp_path)


@pytest.mark.requirement("S116")
def test_alert_covers_every_run_that_did_not_run_without_the_request_of_a_person(
    tmp_path: Path,
) -> None:
    ends = {
        (state, reason)
        for outcomes in (STATES_WITHOUT_ATTEMPT, STATES_WITHOUT_SUCCESS)
        for reason, states in outcomes.items()
        for state in states & ENDED - {RunState.SUCCEEDED}
    }
    tests = [
        probe_test(
            "HarebellRunsNotRun",
            f"{state}, {reason}",
            [(Probe(300, {runs_ended(state, reason): "0x99 1x300"}), reason not in REQUESTED)],
        )
        for state, reason in sorted(ends)
    ]

    check_with_promtool("HarebellRunsNotRun", tests, tmp_path)
