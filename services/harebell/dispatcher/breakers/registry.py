"""All breakers of a dispatcher, as a gate: whose runs are held back, and who is probed. Pure."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.breakers import (
    BreakerEventData,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.contract.downstream import UNKNOWN_DOWNSTREAM
from harebell.contract.types import EARLIEST
from harebell.dispatcher.breakers.breaker import Breaker, BreakerConfig
from harebell.dispatcher.release.gates import Deferral
from harebell.messaging.ticket_batches import TicketHeader

BREAKER_GATE: Final = "breaker"  # as metrics name this gate
MAX_WATCHED: Final = 1_000  # downstreams with failures; of more none is watched before one is quiet
REMEMBERED: Final = timedelta(hours=1)  # since it closed: later nobody says otherwise any more
FOR_GOOD: Final = timedelta(days=3660)


class BreakerRegistry:
    """Only a downstream that has failed of late is watched: success of others costs nothing."""

    def __init__(self, rule: BreakerConfig, *, automatic: bool = True) -> None:
        self._rule = rule
        self._automatic = automatic
        self._watched: dict[str, Breaker] = {}
        self._holding: set[str] = set()  # those watched that are not closed
        self._forced: dict[str, BreakerSnapshotEntry] = {}
        self._forced_as_of: datetime | None = None
        self._untold: deque[BreakerEventData] = deque(maxlen=MAX_WATCHED)

    @property
    def watches(self) -> bool:
        """Whether successes are of any interest."""
        return bool(self._watched)

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # a gate's
        return not (self._holding or self._forced)

    def deferral(self, ticket: TicketHeader, now: datetime) -> Deferral | None:
        name = ticket.downstream
        forced = self._forced.get(name)
        if forced is not None and (wait := _remaining(forced, now)) is not None:
            is_open = forced.forced is BreakerState.OPEN
            return Deferral(BREAKER_GATE, wait) if is_open else None
        if name not in self._holding:
            return None
        breaker = self._watched[name]
        before = breaker.since
        wait = breaker.deferral(now)
        self._note(name, breaker, before)
        return None if wait is None else Deferral(BREAKER_GATE, wait)

    def record_outcome(self, downstream: str, now: datetime, *, healthy: bool) -> None:
        """An attempt has ended."""
        breaker = self._watched.get(downstream)
        if breaker is None and self._automatic and not healthy:
            breaker = self._watch(downstream)
        if breaker is None:
            return
        before = breaker.since
        breaker.record_outcome(now, healthy=healthy)
        self._note(downstream, breaker, before)

    def apply_event(self, fact: BreakerEventData) -> None:
        """Of another dispatcher, or of this one."""
        self._adopt(fact.downstream, fact.state, fact.since, fact.failed, fact.attempts)

    def apply_snapshot(self, standing: BreakerSnapshot) -> None:
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

    def prune(self, now: datetime) -> None:
        """Forget those of whom nothing is to be said."""
        self._watched = {
            name: breaker
            for name, breaker in self._watched.items()
            if not breaker.can_be_dropped(now, after=REMEMBERED)
        }

    def take_unpublished(self) -> list[BreakerEventData]:
        """Transitions that nobody has been told of; whoever asks tells."""
        untold = list(self._untold)
        self._untold.clear()
        return untold

    def not_closed(self, now: datetime) -> Iterator[tuple[str, BreakerState]]:
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
            breaker.apply_remote_state(state, since, failed=failed, attempts=attempts)
            self._sort(name, breaker)

    def _watch(self, name: str) -> Breaker | None:
        if name == UNKNOWN_DOWNSTREAM or len(self._watched) >= MAX_WATCHED:
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


def _remaining(forced: BreakerSnapshotEntry, now: datetime) -> timedelta | None:
    """How long it stays forced; None: no longer, whoever has yet to say so."""
    if forced.forced_until is None:
        return FOR_GOOD
    return forced.forced_until - now if forced.forced_until > now else None


def _fact(name: str, breaker: Breaker) -> BreakerEventData:
    return BreakerEventData(
        downstream=name,
        state=breaker.state,
        since=breaker.since,
        failed=breaker.failed,
        attempts=breaker.attempts,
    )
