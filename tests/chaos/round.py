"""One round: a load, a fault during it, the recovery, the end of all work and the check."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Final

import asyncpg
from tests.acceptance.stack import now
from tests.chaos.checker import check_history
from tests.chaos.environment import Environment
from tests.chaos.faults import Fault
from tests.chaos.generators import LoadGenerator, Script
from tests.chaos.history import History, Operation, Outage
from tests.chaos.load import MAX_REQUESTS, Load
from tests.chaos.result import CheckResult, Finding, FindingKind

from harebell.audit.audit import Scope, run_audit
from harebell.audit.store import connect_read_only
from harebell.client import Client

LOAD_SPAN: Final = 8.0  # seconds with commands, in addition to the outage
AFTER_LOAD: Final = 3.0  # seconds after the last command in which scheduled times may be
MIN_FAULT_DELAY, MAX_FAULT_DELAY = 2.5, 5.0  # seconds from the beginning of a round to its fault
RESPONSE_TIMEOUT: Final = 90.0  # seconds for a response, whatever part is unavailable
IDLE_TIMEOUT: Final = 90.0  # seconds after fault and load until the check begins in any case
POLL_INTERVAL: Final = 0.5  # seconds
SCHEDULES_PER_KIND: Final = 4

# No run is unfinished and no schedule will stage one. A person must resume the other schedules.
_UNFINISHED: Final = """
SELECT (SELECT count(*) FROM runs
        WHERE tenant = $1 AND finished_at IS NULL AND state <> 'unresolved')
     + (SELECT count(*) FROM schedule_state AS s JOIN schedules AS d ON d.id = s.schedule_id
        WHERE d.tenant = $1 AND s.state = 'active')
"""


@dataclass(frozen=True)
class Round:
    """A repeatable round: the same seed and fault make the same load at the same times."""

    seed: int
    fault: Fault

    @property
    def name(self) -> str:
        return f"seed-{self.seed}-row-{self.fault.row}"

    async def run(self, environment: Environment, folder: Path) -> tuple[CheckResult, History]:
        """Run the round. The stack is ready before and after it, and the folder exists."""
        random = Random(self.name)  # noqa: S311  # for a repetition, not for a secret
        environment.random, environment.tenant = random, self.name
        environment.measurements, environment.findings = {}, []
        started_at = truncate_to_ms(now())
        span = self.span(environment.outage)
        generator = LoadGenerator(
            random=random,
            target=environment.target,
            path=self.name,
            started_at=started_at,
            span=span,
        )
        script = self.script(generator)
        async with Client.connect(
            environment.stack.amqp_url, tenant=self.name, timeout=RESPONSE_TIMEOUT / MAX_REQUESTS
        ) as client:
            load = Load(client=client, target=environment.target, journal=folder / "journal.jsonl")
            running = asyncio.create_task(load.run(script, started_at))
            await asyncio.sleep(random.uniform(MIN_FAULT_DELAY, MAX_FAULT_DELAY))
            outages = await self.inject_faults(environment, started_at)
            async with supervise_services(environment):
                await running
                await asyncio.sleep((started_at - now()).total_seconds() + span + AFTER_LOAD)
                await self._until_idle(environment, ended_at=outages[-1].ended_at)
        await environment.until_ready()
        history = await self._history(environment, load.operations, outages)
        result = check_history(history)
        audit_findings = await self._audit(environment, started_at)
        findings = (*result.findings, *environment.findings, *audit_findings)
        measured = replace(result, findings=findings, measurements=environment.measurements)
        return measured, history

    def span(self, outage: float) -> float:
        """Return the number of seconds with commands."""
        return LOAD_SPAN + outage

    def script(self, generator: LoadGenerator) -> Script:
        return generator.script(SCHEDULES_PER_KIND)

    async def inject_faults(
        self,
        environment: Environment,
        started_at: datetime,  # noqa: ARG002  # a subclass uses it
    ) -> list[Outage]:
        """Return the outages in the order of their ends. No service is supervised during one."""
        return [await inject_fault(environment, self.fault)]

    async def _until_idle(self, environment: Environment, *, ended_at: datetime) -> None:
        """Wait until no work is left, or until the timeout. The check finds unfinished runs."""
        deadline = max(now(), ended_at) + timedelta(seconds=IDLE_TIMEOUT)
        unfinished = 1
        while unfinished and now() < deadline:
            await asyncio.sleep(POLL_INTERVAL)
            try:
                unfinished = await self._unfinished(environment)
            except (OSError, asyncpg.PostgresError):
                continue
        environment.measurements["idle"] = max(0.0, (now() - ended_at).total_seconds())

    async def _unfinished(self, environment: Environment) -> int:
        ledger = await asyncpg.connect(environment.stack.database_url)
        try:
            count: int = await ledger.fetchval(_UNFINISHED, self.name)
        finally:
            await ledger.close()
        return count

    async def _audit(self, environment: Environment, started_at: datetime) -> list[Finding]:
        """Return the findings of the audit of the product. The checker checks the lateness."""
        async with connect_read_only(environment.stack.database_url) as ledger:
            scope = Scope(tenant=self.name)
            report = await run_audit(ledger, started_at, scope=scope, late_after=timedelta(hours=1))
        return [
            Finding(
                FindingKind.INCONSISTENT,
                each.key or "",
                f"audit: {each.kind}, {each.at}: {each.text}",
            )
            for each in report.findings
        ]

    async def _history(
        self, environment: Environment, operations: list[Operation], outages: Sequence[Outage]
    ) -> History:
        ledger = await asyncpg.connect(environment.stack.database_url)
        try:
            runs = await ledger.fetch("SELECT * FROM runs WHERE tenant = $1", self.name)
            attempts = await ledger.fetch(
                "SELECT a.* FROM attempts AS a JOIN schedules AS d ON d.id = a.schedule_id "
                "WHERE d.tenant = $1 ORDER BY a.replay_number, a.number",
                self.name,
            )
        finally:
            await ledger.close()
        return History(
            operations=operations,
            calls=environment.target.calls(self.name),
            runs=runs,
            attempts=attempts,
            outages=outages,
        )


async def inject_fault(environment: Environment, fault: Fault) -> Outage:
    started_at = now()
    async with fault.inject(environment):
        await asyncio.sleep(environment.outage)
    max_delay = None if fault.max_delay is None else timedelta(seconds=fault.max_delay)
    return Outage(
        row=fault.row,
        started_at=started_at,
        ended_at=now(),
        can_expire_leases=fault.can_expire_leases,
        recovery=timedelta(seconds=fault.recovery),
        max_delay=max_delay,
    )


@asynccontextmanager
async def supervise_services(environment: Environment) -> AsyncIterator[None]:
    """Start every service again that ends, and count these starts in the measurements."""

    async def supervise() -> None:
        while True:
            restarted = environment.measurements.get("restarted", 0)
            environment.measurements["restarted"] = restarted + await environment.restart_dead()
            await asyncio.sleep(POLL_INTERVAL)

    supervising = asyncio.create_task(supervise())
    try:
        yield
    finally:
        supervising.cancel()
        await asyncio.gather(supervising, return_exceptions=True)


def truncate_to_ms(time: datetime) -> datetime:
    """Return the time in whole milliseconds, as in scheduled times."""
    return time.replace(microsecond=time.microsecond // 1000 * 1000)
