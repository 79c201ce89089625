"""A chaos run: servers of its own, a stack for each seed, waves on it, a line for each, the sum."""

import asyncio
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.acceptance.cluster_stack import ClusterStack
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Stack
from tests.chaos.environment import NAMES, Scene
from tests.chaos.faults import Fault
from tests.chaos.history import History
from tests.chaos.links import BROKER, DATABASE, Links
from tests.chaos.result import Finding, Kind, Verdict, say
from tests.chaos.round import Wave
from tests.rig.servers import Servers

from harebell.dev.servers import PrivateServers

FEWEST, MOST = 6, 8  # rows of a seed of the mixed run
START: Final = 25.0  # seconds for the servers, measured
STACK: Final = 12.0  # seconds for the services of one seed
CLUSTER: Final = 30.0  # seconds for three nodes, where a seed has a fault of theirs
AROUND: Final = 12.0  # seconds of a wave, beside its commands
TOLD: Final = 20  # findings of a wave that are printed; all are kept


@dataclass(frozen=True)
class Plan:
    """Which waves, in which order; one list for each stack."""

    seeds: Sequence[Sequence[Wave]]
    outage: float

    @property
    def waves(self) -> int:
        return sum(map(len, self.seeds))

    @property
    def seconds(self) -> float:
        lasting = sum(wave.span(self.outage) for waves in self.seeds for wave in waves)
        clusters = sum(any(wave.fault.clustered for wave in waves) for waves in self.seeds)
        stacks = len(self.seeds) * STACK + clusters * (STACK + CLUSTER)
        return START + stacks + lasting + self.waves * AROUND


def mixed(seed: int, faults: Sequence[Fault]) -> list[Wave]:
    """Six to eight rows, or all if there are fewer, and one fault of each."""
    dice = Random(seed)  # noqa: S311  # to be repeated, not to be secret
    rows = {row: list(those) for row, those in groupby(faults, lambda each: each.number)}
    count = min(len(rows), dice.randint(FEWEST, MOST))
    return [Wave(seed, _one(seed, rows[row])) for row in dice.sample(list(rows), count)]


def _one(seed: int, faults: Sequence[Fault]) -> Fault:
    """By a lot for each, so that a fault that is new takes the place of few others."""
    return min(faults, key=lambda each: Random(f"{seed}-{each.row}").random())  # noqa: S311


def single(seed: int, faults: Sequence[Fault]) -> list[Wave]:
    """Every one of them."""
    return [Wave(seed, each) for each in faults]


@dataclass
class Report:
    """A line a wave; `out`: the same as JSON lines."""

    out: Path | None
    verdicts: list[Verdict] = field(default_factory=list)

    def add(self, wave: Wave, verdict: Verdict, took: float, folder: Path) -> None:
        self.verdicts.append(verdict)
        say(f"{wave.name:24} {wave.fault.title:46} {verdict} ({took:.0f} s)")
        for finding in verdict.findings[:TOLD]:
            say(f"    {finding}")
        if verdict.findings:
            say(f"    again: --seed {wave.seed} --rows {wave.fault.row}; kept in {folder}")
        if self.out is not None:
            line = {"seed": wave.seed, "row": wave.fault.row, "title": wave.fault.title}
            with self.out.open("a") as file:
                file.write(json.dumps(line | verdict.as_json() | {"took": round(took)}) + "\n")

    def fail(self, wave: Wave, error: Exception) -> None:
        """A wave that could not be judged is no wave that kept its promise."""
        finding = Finding(Kind.RECORD, wave.name, f"could not be judged: {error!r}")
        self.verdicts.append(Verdict([finding]))
        say(f"{wave.name:24} {wave.fault.title:46} {finding}")

    @property
    def broken(self) -> int:
        return sum(not verdict.is_kept for verdict in self.verdicts)


def perform(plan: Plan, root: Path, report: Report) -> None:
    private = PrivateServers(root / "servers")
    try:
        private.start()
        servers = Servers(private.amqp_url, private.database_url, private)
        for number, waves in enumerate(plan.seeds):
            for stage in (staged, clustered):
                mine = [wave for wave in waves if wave.fault.clustered is (stage is clustered)]
                if not mine:
                    continue
                with stage(servers, root / f"{stage.__name__}-{number}", plan.outage) as scene:
                    asyncio.run(play(mine, scene, root, report))
    finally:
        private.discard()


@contextmanager
def staged(servers: Servers, root: Path, outage: float) -> Iterator[Scene]:
    """A stack whose services reach their servers through links; nothing runs in it yet."""
    root.mkdir(parents=True, exist_ok=True)
    with (
        Target.open(root / "calls.jsonl") as target,
        Stack.open(servers, root) as stack,
        Links.open(NAMES, {BROKER: servers.amqp_url, DATABASE: servers.database_url}) as links,
    ):
        yield Scene(stack, links, target, Random(0), outage)  # noqa: S311  # set by each wave


@contextmanager
def clustered(servers: Servers, root: Path, outage: float) -> Iterator[Scene]:
    """Likewise, on three nodes of RabbitMQ, all of which the services know and reach directly."""
    root.mkdir(parents=True, exist_ok=True)
    with (
        Target.open(root / "calls.jsonl") as target,
        ClusterStack.open(servers, root, counts=None) as opened,
        Links.open(NAMES, {DATABASE: servers.database_url}) as links,
    ):
        dice = Random(0)  # noqa: S311  # set by each wave
        yield Scene(opened.stack, links, target, dice, outage, clustered=opened)


async def play(waves: Sequence[Wave], scene: Scene, root: Path, report: Report) -> None:
    await scene.start_all()
    for wave in waves:
        folder, began = root / wave.name, time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)  # nothing else waits here
        try:
            verdict, history = await wave.play(scene, folder)
        except Exception as error:  # noqa: BLE001  # judged where deliveries are handled
            report.fail(wave, error)
            await scene.restart_dead()
            continue
        if verdict.findings:
            keep(history, verdict, scene, folder)
        report.add(wave, verdict, time.monotonic() - began, folder)


def keep(history: History, verdict: Verdict, scene: Scene, folder: Path) -> None:
    """All that a person needs to understand it: what was seen, the ledger's rows, the logs."""
    tables: dict[str, Sequence[Any]] = {"runs": history.runs, "attempts": history.attempts}
    for name, rows in tables.items():
        lines = [json.dumps(dict(row), default=str) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines))
    outages = [f"{o.row}: {o.struck_at} to {o.healed_at}\n" for o in history.outages]
    found = [f"{finding}\n" for finding in verdict.findings]
    (folder / "findings.txt").write_text("".join([*outages, *found]))
    lines = [line for line in scene.target.file.read_text().splitlines() if folder.name in line]
    (folder / "calls.jsonl").write_text("\n".join(lines) + "\n")
    for log in (scene.stack.services.root / "logs").glob("*.log"):
        (folder / log.name).write_bytes(log.read_bytes())
