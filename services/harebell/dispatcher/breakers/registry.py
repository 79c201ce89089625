"""The breakers of a dispatcher, as one gate: which downstreams are deferred or probed. Pure."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Final

from harebell.contract.breakers import (
    BreakerEventData,
    BreakerReason,
    BreakerSnapshot,
    BreakerSnapshotEntry,
    BreakerState,
)
from harebell.contract.downstream import UNKNOWN_DOWNSTREAM
from harebell.contract.types import EARLIEST
from harebell.dispatcher.breakers.breaker import Breaker, BreakerConfig
from harebell.dispatcher.breakers.sentences import describe_transition
from harebell.dispatcher.release.gates import PROBE, Deferral, Probe
from harebell.messaging.ticket_batches import TicketHeader

BREAKER_GATE: Final = "breaker"  # the label value of this gate in metrics
MAX_BREAKERS: Final = 1_000  # downstreams with failures; further ones have no breaker
CLOSED_RETENTION: Final = timedelta(hours=1)  # after which no event about a closing is in transit
FOREVER: Final = timedelta(days=3660)  # deferral of a breaker that is forced open without an end


class BreakerRegistry:
    """The breakers of the downstreams that have failed recently.

    A downstream without failures has no breaker, so its successes cost nothing.
    """

    def __init__(self, config: BreakerConfig, *, automatic: bool = True) -> None:
        self._config = config
        self._automatic = automatic
        self._breakers: dict[str, Breaker] = {}
        self._not_closed: set[str] = set()
        self._forced: dict[str, BreakerSnapshotEntry] = {}
        self._forced_as_of: datetime | None = None
        self._unpublished: deque[BreakerEventData] = deque(maxlen=MAX_BREAKERS)

    @property
    def needs_successes(self) -> bool:
        """True if a success can change a breaker."""
        return bool(self._breakers)

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # required by the protocol
        return not (self._not_closed or self._forced)

    def decide(self, ticket: TicketHeader, now: datetime) -> Deferral | Probe | None:
        """Return the deferral of a ticket, or `PROBE` if it is a probe of a half open breaker."""
        name = ticket.downstream
        forced = self._forced.get(name)
        if forced is not None and (wait := _remaining(forced, now)) is not None:
            is_open = forced.forced is BreakerState.OPEN
            return Deferral(BREAKER_GATE, wait) if is_open else None
        if name not in self._not_closed:
            return None
        breaker = self._breakers[name]
        before = breaker.since
        wait = breaker.deferral(now)
        self._record_transition(name, breaker, before)
        return PROBE if wait is None else Deferral(BREAKER_GATE, wait)

    def record_outcome(self, downstream: str, now: datetime, *, healthy: bool) -> None:
        """Count an ended attempt of a downstream."""
        breaker = self._breakers.get(downstream)
        if breaker is None and self._automatic and not healthy:
            breaker = self._add(downstream)
        if breaker is None:
            return
        before = breaker.since
        breaker.record_outcome(now, healthy=healthy)
        self._record_transition(downstream, breaker, before)

    def apply_event(self, event: BreakerEventData) -> None:
        """Adopt the transition that this or another dispatcher published."""
        self._adopt(event)

    def apply_snapshot(self, snapshot: BreakerSnapshot) -> None:
        """Adopt the stored breakers of the ticker.

        The snapshot replaces all forced states. A newer transition of this dispatcher is published
        again, because the ticker has not stored it.
        """
        if self._forced_as_of is not None and snapshot.as_of < self._forced_as_of:
            return
        self._forced_as_of = snapshot.as_of
        self._forced = {each.downstream: each for each in snapshot.breakers if each.forced}
        stored = {each.downstream: each for each in snapshot.breakers}
        for each in snapshot.breakers:
            if each.since is not None:
                self._adopt(
                    BreakerEventData(
                        downstream=each.downstream,
                        state=each.state,
                        since=each.since,
                        failed=each.failed,
                        attempts=each.attempts,
                    )
                )
        for name, breaker in self._breakers.items():
            stored_since = stored[name].since if name in stored else None
            if breaker.since > (stored_since or EARLIEST):
                self._unpublished.append(_to_event(name, breaker))

    def prune(self, now: datetime) -> None:
        """Drop the breakers that a new one could replace."""
        self._breakers = {
            name: breaker
            for name, breaker in self._breakers.items()
            if not breaker.can_be_dropped(now, after=CLOSED_RETENTION)
        }

    def take_unpublished(self) -> list[BreakerEventData]:
        """Remove and return the transitions that no event has reported."""
        unpublished = list(self._unpublished)
        self._unpublished.clear()
        return unpublished

    def not_closed(self, now: datetime) -> Iterator[tuple[str, BreakerState]]:
        """Yield each downstream whose effective state is not closed, with that state."""
        for name in self._breakers.keys() | self._forced.keys():
            if (state := self._effective_state(name, now)) is not BreakerState.CLOSED:
                yield name, state

    def _effective_state(self, name: str, now: datetime) -> BreakerState:
        forced = self._forced.get(name)
        if forced is not None and forced.forced and _remaining(forced, now) is not None:
            return forced.forced
        breaker = self._breakers.get(name)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def _adopt(self, event: BreakerEventData) -> None:
        name = event.downstream
        known = self._breakers.get(name)
        if known is None and event.state is BreakerState.CLOSED:
            return
        if self._automatic and (breaker := known or self._add(name)):
            breaker.apply_remote_state(
                event.state,
                event.since,
                failed=event.failed,
                attempts=event.attempts,
                reason=_known_reason(event.reason),
            )
            self._update_not_closed(name, breaker)

    def _add(self, name: str) -> Breaker | None:
        if name == UNKNOWN_DOWNSTREAM or len(self._breakers) >= MAX_BREAKERS:
            return None
        breaker = self._breakers[name] = Breaker(config=self._config)
        return breaker

    def _record_transition(self, name: str, breaker: Breaker, before: datetime) -> None:
        if breaker.since != before:
            self._unpublished.append(_to_event(name, breaker))
            self._update_not_closed(name, breaker)

    def _update_not_closed(self, name: str, breaker: Breaker) -> None:
        if breaker.state is BreakerState.CLOSED:
            self._not_closed.discard(name)
        else:
            self._not_closed.add(name)


def _remaining(forced: BreakerSnapshotEntry, now: datetime) -> timedelta | None:
    """Return how long the breaker stays forced, or None after the end of the forced state."""
    if forced.forced_until is None:
        return FOREVER
    return forced.forced_until - now if forced.forced_until > now else None


def _known_reason(reason: str | None) -> BreakerReason | None:
    """Return the reason, or None for a reason of a later version."""
    return BreakerReason(reason) if reason in set(BreakerReason) else None


def _to_event(name: str, breaker: Breaker) -> BreakerEventData:
    return BreakerEventData(
        downstream=name,
        state=breaker.state,
        since=breaker.since,
        failed=breaker.failed,
        attempts=breaker.attempts,
        reason=breaker.reason,
        next_probe_at=breaker.next_probe_at(),
        text=describe_transition(name, breaker),
    )
