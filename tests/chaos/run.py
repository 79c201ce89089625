"""A chaos run: private servers, one stack for each seed, rounds on the stack, and a report."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

from tests.acceptance.cluster_stack import ClusterStack
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.chaos.environment import NAMES, Environment
from tests.chaos.faults import Fault
from tests.chaos.history import History
from tests.chaos.links import BROKER, DATABASE, Links
from tests.chaos.result import CheckResult, Finding, FindingKind, print_line
from tests.chaos.round import Round
from tests.rig.servers import Servers, server_directory
from tests.rig.standby import StandbyPair

from harebell.dev.servers import PrivateServers
from harebell.dev.spawn import start_process

OpenEnvironment: TypeAlias = Callable[[Servers, Path, float], AbstractContextManager[Environment]]

MIN_ROWS, MAX_ROWS = 6, 8  # of a seed of the mixed run
SERVERS_START: Final = 25.0  # seconds, measured
STACK_START: Final = 12.0  # seconds for the services of one seed
CLUSTER_START: Final = 30.0  # seconds for three nodes, for a seed with a fault of a cluster
ROUND_OVERHEAD: Final = 12.0  # seconds of a round in addition to its commands
MAX_PRINTED_FINDINGS: Final = 20  # of one round; the files contain all


@dataclass(frozen=True)
class ChaosPlan:
    """The rounds of a chaos run, as one list for each stack."""

    seeds: Sequence[Sequence[Round]]
    outage: float

    @property
    def round_count(self) -> int:
        return sum(map(len, self.seeds))

    @property
    def seconds(self) -> float:
        """The expected duration."""
        spans = sum(each.span(self.outage) for rounds in self.seeds for each in rounds)
        clusters = sum(any(each.fault.needs_cluster for each in rounds) for rounds in self.seeds)
        stacks = len(self.seeds) * STACK_START + clusters * (STACK_START + CLUSTER_START)
        return SERVERS_START + stacks + spans + self.round_count * ROUND_OVERHEAD


def mixed_rounds(seed: int, faults: Sequence[Fault]) -> list[Round]:
    """Return six to eight rows, or all rows if there are fewer, with one fault of each row."""
    random = Random(seed)  # noqa: S311  # for a repetition, not for a secret
    rows = {row: list(group) for row, group in groupby(faults, lambda each: each.number)}
    count = min(len(rows), random.randint(MIN_ROWS, MAX_ROWS))
    chosen = random.sample(list(rows), count)
    return [Round(seed, _choose_fault(seed, rows[row])) for row in chosen]


def _choose_fault(seed: int, faults: Sequence[Fault]) -> Fault:
    """Return the fault with the lowest random number, so that a new fault replaces few others."""
    return min(faults, key=lambda each: Random(f"{seed}-{each.row}").random())  # noqa: S311  # no secret


def single_rounds(seed: int, faults: Sequence[Fault]) -> list[Round]:
    """Return one round for each fault."""
    return [Round(seed, each) for each in faults]


@dataclass
class Report:
    """A line for each round, and the same as JSON lines in the file `out`."""

    out: Path | None
    results: list[CheckResult] = field(default_factory=list)

    def add(self, played: Round, result: CheckResult, *, seconds: float, folder: Path) -> None:
        fault = played.fault
        self.results.append(result)
        print_line(f"{played.name:24} {fault.title:46} {result} ({seconds:.0f} s)")
        for finding in result.findings[:MAX_PRINTED_FINDINGS]:
            print_line(f"    {finding}")
        if result.findings:
            options = f"--seed {played.seed} --rows {fault.row}"
            print_line(f"    repeat with: {options}; files in {folder}")
        if self.out is not None:
            line = {"seed": played.seed, "row": fault.row, "title": fault.title}
            with self.out.open("a") as file:
                file.write(json.dumps(line | result.as_json() | {"seconds": round(seconds)}) + "\n")

    def add_failure(self, failed: Round, error: Exception) -> None:
        """Record a round without a check as a round that broke a promise."""
        text = f"the check was not possible: {error!r}"
        finding = Finding(FindingKind.INCONSISTENT, failed.name, text)
        self.results.append(CheckResult(findings=[finding]))
        print_line(f"{failed.name:24} {failed.fault.title:46} {finding}")

    @property
    def broken(self) -> int:
        return sum(not result.has_kept_promises for result in self.results)


def run_plan(plan: ChaosPlan, root: Path, report: Report) -> None:
    private = PrivateServers(root / "servers")
    try:
        private.start()
        servers = Servers(private.amqp_url, private.database_url, private)
        for number, rounds in enumerate(plan.seeds):
            for name, open_environment, suitable in stacks_of(rounds):
                folder = root / f"{name}-{number}"
                with open_environment(servers, folder, plan.outage) as environment:
                    asyncio.run(run_rounds(suitable, environment, root=root, report=report))
    finally:
        private.discard()


def stacks_of(rounds: Sequence[Round]) -> Iterator[tuple[str, OpenEnvironment, Sequence[Round]]]:
    """Yield a name, a stack and its rounds. A promotion uses up its pair of databases."""
    alone = [each for each in rounds if each.fault.needs_standby]
    clustered = [each for each in rounds if each.fault.needs_cluster]
    others = [each for each in rounds if each not in alone and each not in clustered]
    if others:
        yield "single_broker", single_broker, others
    if clustered:
        yield "cluster", cluster, clustered
    for each in alone:
        yield f"standby-{each.fault.row}", standby, [each]


@contextmanager
def single_broker(servers: Servers, root: Path, outage: float) -> Iterator[Environment]:
    """Yield a stack without services, whose services reach their servers through links."""
    root.mkdir(parents=True, exist_ok=True)
    with (
        Target.open(root / "calls.jsonl") as target,
        Stack.open(servers, root, start=start_process) as stack,
        Links.open(
            NAMES, {BROKER: servers.amqp_url, DATABASE: servers.database_url}, reads_amqp=True
        ) as links,
    ):
        yield Environment(
            stack=stack,
            links=links,
            target=target,
            random=Random(0),  # noqa: S311  # each round sets its own
            outage=outage,
        )


@contextmanager
def cluster(servers: Servers, root: Path, outage: float) -> Iterator[Environment]:
    """Yield a stack without services, whose services reach three RabbitMQ nodes directly."""
    root.mkdir(parents=True, exist_ok=True)
    with (
        Target.open(root / "calls.jsonl") as target,
        ClusterStack.open(servers, root, counts=None) as opened,
        Links.open(NAMES, {DATABASE: servers.database_url}) as links,
    ):
        yield Environment(
            stack=opened.stack,
            links=links,
            target=target,
            random=Random(0),  # noqa: S311  # each round sets its own
            outage=outage,
            cluster_stack=opened,
        )


@contextmanager
def standby(servers: Servers, root: Path, outage: float) -> Iterator[Environment]:
    """Yield a stack without services, whose services know a primary and a synchronous standby."""
    root.mkdir(parents=True, exist_ok=True)
    with (
        Target.open(root / "calls.jsonl") as target,
        server_directory(root / "databases") as directory,
        StandbyPair.open(directory) as pair,
        Stack.open(
            replace(servers, database_url=pair.database_url), root, start=start_process
        ) as stack,
        Links.open(NAMES, {BROKER: servers.amqp_url}) as links,
    ):
        yield Environment(
            stack=stack,
            links=links,
            target=target,
            random=Random(0),  # noqa: S311  # each round sets its own
            outage=outage,
            standby_pair=pair,
        )


async def run_rounds(
    rounds: Sequence[Round], environment: Environment, *, root: Path, report: Report
) -> None:
    await environment.start_all()
    for each in rounds:
        folder, started = root / each.name, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)  # no other task runs here
        try:
            result, history = await each.run(environment, folder)
        except Exception as error:  # noqa: BLE001  # any failure of a round is a finding
            report.add_failure(each, error)
            await environment.restart_dead()
            await environment.until_ready()
            continue
        if result.findings:
            save_evidence(history, result, environment, folder)
        report.add(each, result, seconds=time.monotonic() - started, folder=folder)


def save_evidence(
    history: History, result: CheckResult, environment: Environment, folder: Path
) -> None:
    """Write the files that explain the findings: calls, rows of the ledger and logs."""
    tables: dict[str, Sequence[Any]] = {"runs": history.runs, "attempts": history.attempts}
    for name, rows in tables.items():
        lines = [json.dumps(dict(row), default=str) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    outages = [f"{o.row}: {o.started_at} to {o.ended_at}\n" for o in history.outages]
    findings = [f"{finding}\n" for finding in result.findings]
    (folder / "findings.txt").write_text("".join([*outages, *findings]))
    calls = environment.target.file.read_text().splitlines()
    lines = [line for line in calls if folder.name in line]
    (folder / "calls.jsonl").write_text("\n".join(lines) + "\n")
    for log in (environment.stack.services.root / "logs").glob("*.log"):
        (folder / log.name).write_bytes(log.read_bytes())
