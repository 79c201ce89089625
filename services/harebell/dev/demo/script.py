"""What happens in the demo, in its order."""

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
    expected_runs,
    scenes,
    the_one,
)
from harebell.dev.demo.sources import LOOK_S, LedgerReader, Runs, TargetProcess
from harebell.dev.demo.table import RunTable
from harebell.dev.demo.verdict import DemoVerdict, judge
from harebell.domain.run_states import RunState
from harebell.messaging.topology.bus import EVENTS_RECENT

# Generous, for a machine that is busy with other things: the demo itself takes about 15 s.
STORED_S: Final = 20.0  # until the ledger shows what was published
DEAD_S: Final = 30.0  # until the broken target's run is given up
LETTER_S: Final = 20.0  # until its dead letter lies on the desk
ENDED_S: Final = 60.0  # until nothing is open any more


async def play(
    amqp_url: str, target: TargetProcess, suffix: str, programme: Narration
) -> DemoVerdict:
    cast = scenes(target.url, suffix)
    _introduce(target, programme)
    async with Client.connect(amqp_url, name="harebell-demo") as harebell:
        story = DemoScript(amqp_url, cast, programme, harebell, target)
        for act in (story.publish, story.watch, story.work_the_desk, story.watch_the_rest):
            if not await act():
                break  # what comes next would wait in vain; the verdict says what is missing
        return judge(cast, await story.record.attempts(), target.calls())


def _introduce(target: TargetProcess, programme: Narration) -> None:
    programme.chapter("The target")
    programme.say(f"A web service of its own (pid {target.pid}) listens on {target.url}:")
    programme.say("/ok answers well, /flaky fails twice a run, /broken fails until it is fixed.")
    programme.say(f"It writes down every call in {target.file}")


class DemoScript:
    def __init__(
        self,
        amqp_url: str,
        cast: Sequence[DemoSchedule],
        programme: Narration,
        harebell: Client,
        target: TargetProcess,
    ) -> None:
        self.record = LedgerReader(harebell, cast)
        self._amqp_url = amqp_url
        self._cast = cast
        self._programme = programme
        self._harebell = harebell
        self._target = target
        self._board = RunTable(programme.console, {scene.key: scene.title for scene in cast})
        self._dying = the_one(cast, ExpectedEnd.DIES).key

    async def publish(self) -> bool:
        """Cancelling waits for the ledger, so that what is cancelled has been staged before."""
        say = self._programme.say
        self._programme.chapter("The schedules, published by a program that knows AMQP and JSON")
        self._programme.command(f"export {commands.URL}={shlex.quote(self._amqp_url)}")
        for scene in self._cast:
            say(f"# {scene.title}")
            self._publish_one("schedule.put", scene.body)
        if not await self.record.follow(self._is_stored, limit=STORED_S):
            say(f"After {STORED_S:.0f} s the ledger does not have all of it.")
            say(f"Refusals are in the queue {EVENTS_RECENT.name}, which the management UI shows;")
            say(f"what broke a service is shown by {commands.shown('dlq', 'list')}")
            return False
        say("# the ledger has all their runs by now; one is cancelled in time")
        self._publish_one(
            "schedule.cancel", cancellation(the_one(self._cast, ExpectedEnd.CANCELLED))
        )
        return True

    async def watch(self) -> bool:
        """Until one run is given up."""
        self._programme.chapter("The runs, as the ledger shows them")
        return await self._show(self._has_died, limit=DEAD_S)

    async def work_the_desk(self) -> bool:
        """As a person would: look, repair what was broken, replay."""
        self._programme.chapter("The dead-letter desk")
        letter = await self._letter()
        if letter is None:
            self._programme.say(f"There is no dead letter after {LETTER_S:.0f} s.")
            return False
        await self._command("dlq", "list", "--key", self._dying)
        self._target.fix()
        self._programme.say("# the target is fixed")
        await self._command("dlq", "replay", letter, "--note", "the target is fixed")
        return True

    async def watch_the_rest(self) -> bool:
        self._programme.chapter("The runs again, to the last")
        return await self._show(self._is_over, limit=ENDED_S)

    async def _show(self, until: Callable[[Runs], bool], *, limit: float) -> bool:
        with self._board.showing() as show:
            if await self.record.follow(until, limit=limit, show=show):
                return True
        self._programme.say(f"It has not come further in {limit:.0f} s.")
        return False

    def _publish_one(self, verb: str, body: str) -> None:
        line = commands.command_line(verb, body)
        self._programme.command(line)
        commands.publish(line, amqp_url=self._amqp_url)

    async def _command(self, *arguments: str) -> None:
        self._programme.command(commands.shown(*arguments))
        self._programme.output(await commands.harebell(*arguments, amqp_url=self._amqp_url))

    async def _letter(self) -> str | None:
        """The dead letter's id, once it lies on the desk: a moment after the ledger says dead."""
        deadline = monotonic() + LETTER_S
        while monotonic() < deadline:
            async for letter in self._harebell.dead_letters(key=self._dying):
                return str(letter.id)
            await asyncio.sleep(LOOK_S)
        return None

    def _is_stored(self, runs: Runs) -> bool:
        return len(runs) >= expected_runs(self._cast)

    def _has_died(self, runs: Runs) -> bool:
        return any(run.key == self._dying and run.state is RunState.DEAD for run in runs)

    def _is_over(self, runs: Runs) -> bool:
        return self._is_stored(runs) and all(run.ended for run in runs)
