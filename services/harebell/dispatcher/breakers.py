"""All breakers of a dispatcher, as a gate: whose runs are held back, and who is probed. Pure."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.breakers import BreakerFact, BreakerState, Standing, StandingBreaker
from harebell.contract.downstream import UNKNOWN
from harebell.contract.scalars import EARLIEST
from harebell.dispatcher.breaker import Breaker, Rule
from harebell.dispatcher.gates import Hold
from harebell.kernel.routing import Routed

BREAKER: Final = "breaker"  # as metrics name this gate
MAX_WATCHED: Final = 1_000  # downstreams with failures; of more none is watched before one is quiet
REMEMBERED: Final = timedelta(hours=1)  # since it closed: later nobody says otherwise any more
FOR_GOOD: Final = timedelta(days=3660)


class Breakers:
    """Only a downstream that has failed of late is watched: success of others costs nothing."""

    def __init__(self, rule: Rule, *, automatic: bool = True) -> None:
        self._rule = rule
        self._automatic = automatic
        self._watched: dict[str, Breaker] = {}
        self._holding: set[str] = set()  # those watched that are not closed
        self._forced: dict[str, StandingBreaker] = {}
        self._forced_as_of: datetime | None = None
        self._untold: deque[BreakerFact] = deque(maxlen=MAX_WATCHED)

    @property
    def watches(self) -> bool:
        """Whether successes are of any interest."""
        return bool(self._watched)

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # a gate's
        return not (self._holding or self._forced)

    def held(self, ticket: Routed, now: datetime) -> Hold | None:
        name = ticket.downstream
        forced = self._forced.get(name)
        if forced is not None and (wait := _remaining(forced, now)) is not None:
            is_open = forced.forced is BreakerState.OPEN
            return Hold(BREAKER, wait) if is_open else None
        if name not in self._holding:
            return None
        breaker = self._watched[name]
        before = breaker.since
        wait = breaker.held(now)
        self._note(name, breaker, before)
        return None if wait is None else Hold(BREAKER, wait)

    def judge(self, downstream: str, now: datetime, *, healthy: bool) -> None:
        """An attempt has ended."""
        breaker = self._watched.get(downstream)
        if breaker is None and self._automatic and not healthy:
            breaker = self._watch(downstream)
        if breaker is None:
            return
        before = breaker.since
        breaker.judge(now, healthy=healthy)
        self._note(downstream, breaker, before)

    def hear(self, fact: BreakerFact) -> None:
        """Of another dispatcher, or of this one."""
        self._adopt(fact.downstream, fact.state, fact.since, fact.failed, fact.attempts)

    def settle(self, standing: Standing) -> None:
        """As it is stored. What is forced is just that; what is newer here is told again."""
        if self._forced_as_of is not None and standing.as_of < self._forced_as_of:
            return
        self._forced_as_of = standing.as_of
        self._forced = {each.downstream: each for each in standing.breakers if each.forced}
        stored = {each.downstream: each for each in standing.breakers}
        for each in standing.breakers:
            if each.since is not None:
                self._adopt(each.downstream, each.state, each.since, each.failed, each.attempts)
        for name, breaker in self._watched.items():
            at = stored[name].since if name in stored else None
            if breaker.since > (at or EARLIEST):
                self._untold.append(_fact(name, breaker))

    def tidy(self, now: datetime) -> None:
        """Forget those of whom nothing is to be said."""
        self._watched = {
            name: breaker
            for name, breaker in self._watched.items()
            if not breaker.is_forgettable(now, after=REMEMBERED)
        }

    def changes(self) -> list[BreakerFact]:
        """Transitions that nobody has been told of; whoever asks tells."""
        untold = list(self._untold)
        self._untold.clear()
        return untold

    def standing(self, now: datetime) -> Iterator[tuple[str, BreakerState]]:
        """Those that are not closed, as they act."""
        for name in self._watched.keys() | self._forced.keys():
            if (state := self._acts(name, now)) is not BreakerState.CLOSED:
                yield name, state

    def _acts(self, name: str, now: datetime) -> BreakerState:
        forced = self._forced.get(name)
        if forced is not None and forced.forced and _remaining(forced, now) is not None:
            return forced.forced
        breaker = self._watched.get(name)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def _adopt(
        self, name: str, state: BreakerState, since: datetime, failed: int, attempts: int
    ) -> None:
        known = self._watched.get(name)
        if known is None and state is BreakerState.CLOSED:
            return
        if self._automatic and (breaker := known or self._watch(name)):
            breaker.adopt(state, since, failed=failed, attempts=attempts)
            self._sort(name, breaker)

    def _watch(self, name: str) -> Breaker | None:
        if name == UNKNOWN or len(self._watched) >= MAX_WATCHED:
            return None
        breaker = self._watched[name] = Breaker(self._rule)
        return breaker

    def _note(self, name: str, breaker: Breaker, before: datetime) -> None:
        if breaker.since != before:
            self._untold.append(_fact(name, breaker))
            self._sort(name, breaker)

    def _sort(self, name: str, breaker: Breaker) -> None:
        if breaker.state is BreakerState.CLOSED:
            self._holding.discard(name)
        else:
            self._holding.add(name)


def _remaining(forced: StandingBreaker, now: datetime) -> timedelta | None:
    """How long it stays forced; None: no longer, whoever has yet to say so."""
    if forced.forced_until is None:
        return FOR_GOOD
    return forced.forced_until - now if forced.forced_until > now else None


def _fact(name: str, breaker: Breaker) -> BreakerFact:
    return BreakerFact(
        downstream=name,
        state=breaker.state,
        since=breaker.since,
        failed=breaker.failed,
        attempts=breaker.attempts,
    )
