"""The steps of the demo, in order."""

import asyncio
import shlex
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Final

from harebell.client import Client
from harebell.dev.demo import commands
from harebell.dev.demo.narration import Narration
from harebell.dev.demo.schedules import (
    DemoSchedule,
    ExpectedEnd,
    cancellation,
    demo_schedules,
    expected_runs,
    first_with_end,
)
from harebell.dev.demo.sources import POLL_INTERVAL, LedgerReader, Runs, TargetProcess
from harebell.dev.demo.table import RunTable
from harebell.dev.demo.verdict import DemoVerdict, judge
from harebell.domain.run_states import RunState
from harebell.messaging.topology.bus import EVENTS_RECENT

# Long limits for a busy machine. The demo takes about 15 s.
STORED_TIMEOUT: Final = 20.0  # until the ledger contains the published schedules
DEAD_TIMEOUT: Final = 30.0  # until the run of the broken target is dead
DEAD_LETTER_TIMEOUT: Final = 20.0  # until its dead letter is stored
END_TIMEOUT: Final = 60.0  # until no run is open


async def play(
    amqp_url: str, target: TargetProcess, *, suffix: str, narration: Narration
) -> DemoVerdict:
    schedules = demo_schedules(target.url, suffix)
    _introduce(target, narration)
    async with Client.connect(amqp_url, name="harebell-demo") as client:
        script = DemoScript(
            client, target, amqp_url=amqp_url, schedules=schedules, narration=narration
        )
        for step in (
            script.publish,
            script.watch,
            script.replay_dead_letter,
            script.watch_the_rest,
        ):
            if not await step():
                break  # later steps need this one, and the verdict shows what is missing
        return judge(schedules, await script.ledger.attempts(), target.calls())


def _introduce(target: TargetProcess, narration: Narration) -> None:
    narration.heading("The target")
    narration.text(f"A separate web service (pid {target.pid}) listens on {target.url}:")
    narration.text("/ok succeeds, /flaky fails twice per run, /broken fails until it is repaired.")
    narration.text(f"The web service records every call in {target.file}.")


class DemoScript:
    """The steps of the demo on a running stack."""

    def __init__(
        self,
        client: Client,
        target: TargetProcess,
        *,
        amqp_url: str,
        schedules: Sequence[DemoSchedule],
        narration: Narration,
    ) -> None:
        self.ledger = LedgerReader(client, schedules)
        self._amqp_url = amqp_url
        self._schedules = schedules
        self._narration = narration
        self._client = client
        self._target = target
        self._table = RunTable(
            narration.console, {schedule.key: schedule.title for schedule in schedules}
        )
        self._dying = first_with_end(schedules, ExpectedEnd.DIES).key

    async def publish(self) -> bool:
        """Publish all schedules, then cancel one whose run is already staged."""
        text = self._narration.text
        self._narration.heading("The schedules, published with amqp-publish")
        self._narration.command(f"export {commands.URL}={shlex.quote(self._amqp_url)}")
        for schedule in self._schedules:
            text(f"# {schedule.title}")
            self._publish_one("schedule.put", schedule.body)
        if not await self.ledger.follow(self._is_stored, limit=STORED_TIMEOUT):
            text(f"After {STORED_TIMEOUT:.0f} s the ledger does not contain all schedules.")
            text(f"The queue {EVENTS_RECENT.name} contains rejections.")
            text(f"{commands.display_line('dlq', 'list')} shows unreadable messages.")
            return False
        text("# The ledger contains all runs. One schedule is cancelled in time.")
        self._publish_one(
            "schedule.cancel", cancellation(first_with_end(self._schedules, ExpectedEnd.CANCELLED))
        )
        return True

    async def watch(self) -> bool:
        """Show the runs until the run of the broken target is dead."""
        self._narration.heading("The runs, as the ledger shows them")
        return await self._show(self._has_died, limit=DEAD_TIMEOUT)

    async def replay_dead_letter(self) -> bool:
        """List the dead letter, repair the target and replay the run."""
        self._narration.heading("The dead letter")
        dead_letter = await self._dead_letter()
        if dead_letter is None:
            self._narration.text(f"No dead letter exists after {DEAD_LETTER_TIMEOUT:.0f} s.")
            return False
        await self._command("dlq", "list", "--key", self._dying)
        self._target.fix()
        self._narration.text("# The target is repaired.")
        await self._command("dlq", "replay", dead_letter, "--note", "the target is repaired")
        return True

    async def watch_the_rest(self) -> bool:
        self._narration.heading("The runs, until all have ended")
        return await self._show(self._has_ended, limit=END_TIMEOUT)

    async def _show(self, until: Callable[[Runs], bool], *, limit: float) -> bool:
        with self._table.live() as show:
            if await self.ledger.follow(until, limit=limit, show=show):
                return True
        self._narration.text(f"The runs made no further progress within {limit:.0f} s.")
        return False

    def _publish_one(self, verb: str, body: str) -> None:
        line = commands.command_line(verb, body)
        self._narration.command(line)
        commands.publish(line, amqp_url=self._amqp_url)

    async def _command(self, *arguments: str) -> None:
        self._narration.command(commands.display_line(*arguments))
        self._narration.output(await commands.harebell(*arguments, amqp_url=self._amqp_url))

    async def _dead_letter(self) -> str | None:
        """Return the id of the dead letter, which is stored shortly after the run is dead."""
        deadline = monotonic() + DEAD_LETTER_TIMEOUT
        while monotonic() < deadline:
            async for dead_letter in self._client.dead_letters(key=self._dying):
                return str(dead_letter.id)
            await asyncio.sleep(POLL_INTERVAL)
        return None

    def _is_stored(self, runs: Runs) -> bool:
        return len(runs) >= expected_runs(self._schedules)

    def _has_died(self, runs: Runs) -> bool:
        return any(run.key == self._dying and run.state is RunState.DEAD for run in runs)

    def _has_ended(self, runs: Runs) -> bool:
        return self._is_stored(runs) and all(run.ended for run in runs)
