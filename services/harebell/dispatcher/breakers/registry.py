"""The breakers of a dispatcher, as one gate: which downstreams are deferred or probed. Pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from harebell.contract.breakers import (
    MAX_SNAPSHOT_BREAKERS,
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
MAX_TENANT_BREAKERS: Final = 1_000  # of one tenant; its further downstreams have no breaker
MAX_BREAKERS: Final = 20_000  # of all tenants
# The breaker of all tenants opens when the breakers of this number of tenants are open.
MIN_OPEN_TENANTS: Final = 3
# A breaker without runs stays open, so an old opening shows nothing about the downstream now.
MAX_OPENING_AGE: Final = timedelta(minutes=5)
CLOSED_RETENTION: Final = timedelta(hours=1)  # after which no event about a closing is in transit
FOREVER: Final = timedelta(days=3660)  # deferral of a breaker that is forced open without an end
ALL_TENANTS: Final = ""  # no tenant has this name


class BreakerKey(NamedTuple):
    """The tenant and the downstream of a breaker."""

    tenant: str  # ALL_TENANTS for the breaker that holds every tenant
    downstream: str


class BreakerRegistry:
    """The breakers of the downstreams that have failed recently, for each tenant.

    Without failures, a downstream has no breaker, so its successes cost nothing. Failures of one
    tenant defer only its own tickets. For tenants whose own breaker is closed, the breaker of all
    tenants decides. It opens when MIN_OPEN_TENANTS tenants have an open breaker for the downstream,
    and failures of further attempts never open it, so no single tenant can.
    """

    def __init__(self, config: BreakerConfig, *, automatic: bool = True) -> None:
        self._config = config
        self._automatic = automatic
        self._breakers: dict[BreakerKey, Breaker] = {}
        self._counts: Counter[str] = Counter()  # of the breakers by tenant
        self._not_closed: set[BreakerKey] = set()
        self._not_closed_tenants: defaultdict[str, set[str]] = defaultdict(set)  # by downstream
        self._forced: dict[BreakerKey, BreakerSnapshotEntry] = {}
        self._forced_as_of: datetime | None = None
        self._unpublished: deque[BreakerEventData] = deque(maxlen=MAX_BREAKERS)

    @property
    def needs_successes(self) -> bool:
        """True if a success can change a breaker."""
        return bool(self._breakers)

    def is_idle(self, now: datetime) -> bool:  # noqa: ARG002  # required by the protocol
        return not (self._not_closed or self._forced)

    def decide(self, ticket: TicketHeader, now: datetime) -> Deferral | Probe | None:
        """Return the deferral of a ticket, or `PROBE` if it is a probe of a half open breaker.

        A state that a person forced for the tenant has priority over one for all tenants. Both have
        priority over the breaker of the tenant, and that one over the breaker of all tenants.
        """
        own = BreakerKey(ticket.tenant, ticket.downstream)
        shared = BreakerKey(ALL_TENANTS, ticket.downstream)
        for key in (own, shared) if self._forced else ():
            forced = self._forced.get(key)
            if forced is not None and (wait := _remaining(forced, now)) is not None:
                is_open = forced.forced is BreakerState.OPEN
                return Deferral(BREAKER_GATE, wait) if is_open else None
        # The probes of the tenant itself are few, so they need not wait for the other tenants.
        key = own if own in self._not_closed else shared
        if key not in self._not_closed:
            return None
        breaker = self._breakers[key]
        before = breaker.since
        wait = breaker.deferral(now)
        self._record_transition(key, breaker, before)
        return PROBE if wait is None else Deferral(BREAKER_GATE, wait)

    def record_outcome(self, key: BreakerKey, now: datetime, *, healthy: bool) -> None:
        """Count an ended attempt of a tenant."""
        breaker = self._breakers.get(key)
        if breaker is None and self._automatic and not healthy:
            breaker = self._add(key)
        if breaker is not None:
            before, state = breaker.since, breaker.state
            breaker.record_outcome(now, healthy=healthy)
            self._record_transition(key, breaker, before)
            if state is BreakerState.CLOSED and breaker.state is BreakerState.OPEN:
                self._evaluate_tenants(key.downstream, now)
        if healthy:
            self._record_shared_success(key.downstream, now)

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
        stored = {
            BreakerKey(each.tenant or ALL_TENANTS, each.downstream): each
            for each in (*snapshot.breakers, *snapshot.tenant_breakers)
        }
        self._forced = {key: each for key, each in stored.items() if each.forced}
        for each in stored.values():
            if each.since is not None:
                self._adopt(
                    BreakerEventData(
                        downstream=each.downstream,
                        tenant=each.tenant,
                        state=each.state,
                        since=each.since,
                        failed=each.failed,
                        attempts=each.attempts,
                    )
                )
        self._publish_again(snapshot)

    def prune(self, now: datetime) -> None:
        """Drop the breakers that a new one could replace."""
        self._breakers = {
            key: breaker
            for key, breaker in self._breakers.items()
            if not breaker.can_be_dropped(now, after=CLOSED_RETENTION)
        }
        self._counts = Counter(key.tenant for key in self._breakers)

    def take_unpublished(self) -> list[BreakerEventData]:
        """Remove and return the transitions that no event has reported."""
        unpublished = list(self._unpublished)
        self._unpublished.clear()
        return unpublished

    def not_closed(self, now: datetime) -> Iterator[tuple[BreakerKey, BreakerState]]:
        """Yield each breaker whose effective state is not closed, with that state."""
        for key in self._not_closed | self._forced.keys():
            if (state := self._effective_state(key, now)) is not BreakerState.CLOSED:
                yield key, state

    def _effective_state(self, key: BreakerKey, now: datetime) -> BreakerState:
        for each in (key, BreakerKey(ALL_TENANTS, key.downstream)):
            forced = self._forced.get(each)
            if forced is not None and forced.forced and _remaining(forced, now) is not None:
                return forced.forced
        breaker = self._breakers.get(key)
        return BreakerState.CLOSED if breaker is None else breaker.state

    def _evaluate_tenants(self, downstream: str, now: datetime) -> None:
        """Open the breaker of all tenants if enough tenants have opened theirs recently."""
        opened = [
            breaker
            for tenant in self._not_closed_tenants[downstream]
            if (breaker := self._breakers[BreakerKey(tenant, downstream)]).state
            is BreakerState.OPEN
            and now - breaker.since <= MAX_OPENING_AGE
        ]
        key = BreakerKey(ALL_TENANTS, downstream)
        if len(opened) < MIN_OPEN_TENANTS or (shared := self._add(key)) is None:
            return
        if shared.state is BreakerState.CLOSED:
            before, count = shared.since, len(opened)
            shared.open(now, BreakerReason.SEVERAL_TENANTS, failed=count, attempts=count)
            self._record_transition(key, shared, before)

    def _record_shared_success(self, downstream: str, now: datetime) -> None:
        """Count a success for the breaker of all tenants, whichever tenant called the downstream.

        A failure keeps the breaker half open, because it may be the fault of one tenant.
        """
        key = BreakerKey(ALL_TENANTS, downstream)
        if key in self._not_closed:
            shared = self._breakers[key]
            before = shared.since
            shared.record_outcome(now, healthy=True)
            self._record_transition(key, shared, before)

    def _publish_again(self, snapshot: BreakerSnapshot) -> None:
        """Publish the transitions that are newer than the stored ones.

        A full list of the snapshot omits breakers, so their stored state is unknown.
        """
        lists = {True: snapshot.breakers, False: snapshot.tenant_breakers}
        since = {
            BreakerKey(each.tenant or ALL_TENANTS, each.downstream): each.since or EARLIEST
            for entries in lists.values()
            for each in entries
        }
        for key, breaker in self._breakers.items():
            is_complete = _is_complete(lists[key.tenant == ALL_TENANTS])
            unknown = EARLIEST if is_complete else breaker.since
            if breaker.since > since.get(key, unknown):
                self._unpublished.append(_to_event(key, breaker))

    def _adopt(self, event: BreakerEventData) -> None:
        key = BreakerKey(event.tenant or ALL_TENANTS, event.downstream)
        known = self._breakers.get(key)
        if known is None and event.state is BreakerState.CLOSED:
            return
        if self._automatic and (breaker := known or self._add(key)):
            breaker.apply_remote_state(
                event.state,
                event.since,
                failed=event.failed,
                attempts=event.attempts,
                reason=_known_reason(event.reason),
            )
            self._update_not_closed(key, breaker)

    def _add(self, key: BreakerKey) -> Breaker | None:
        """Return the breaker, which is new if necessary, or None at a bound."""
        if (known := self._breakers.get(key)) is not None:
            return known
        is_full = (
            self._counts[key.tenant] >= MAX_TENANT_BREAKERS or len(self._breakers) >= MAX_BREAKERS
        )
        if key.downstream == UNKNOWN_DOWNSTREAM or is_full:
            return None
        self._counts[key.tenant] += 1
        breaker = self._breakers[key] = Breaker(config=self._config)
        return breaker

    def _record_transition(self, key: BreakerKey, breaker: Breaker, before: datetime) -> None:
        if breaker.since != before:
            self._unpublished.append(_to_event(key, breaker))
            self._update_not_closed(key, breaker)

    def _update_not_closed(self, key: BreakerKey, breaker: Breaker) -> None:
        tenants = self._not_closed_tenants[key.downstream]
        if breaker.state is BreakerState.CLOSED:
            self._not_closed.discard(key)
            tenants.discard(key.tenant)
        else:
            self._not_closed.add(key)
            tenants |= {key.tenant} - {ALL_TENANTS}
        if not tenants:
            del self._not_closed_tenants[key.downstream]


def _is_complete(entries: Sequence[BreakerSnapshotEntry]) -> bool:
    return len(entries) < MAX_SNAPSHOT_BREAKERS


def _remaining(forced: BreakerSnapshotEntry, now: datetime) -> timedelta | None:
    """Return how long the breaker stays forced, or None after the end of the forced state."""
    if forced.forced_until is None:
        return FOREVER
    return forced.forced_until - now if forced.forced_until > now else None


def _known_reason(reason: str | None) -> BreakerReason | None:
    """Return the reason, or None for a reason of a later version."""
    return BreakerReason(reason) if reason in set(BreakerReason) else None


def _to_event(key: BreakerKey, breaker: Breaker) -> BreakerEventData:
    return BreakerEventData(
        downstream=key.downstream,
        tenant=key.tenant or None,
        state=breaker.state,
        since=breaker.since,
        failed=breaker.failed,
        attempts=breaker.attempts,
        reason=breaker.reason,
        next_probe_at=breaker.next_probe_at(),
        text=describe_transition(key.downstream, breaker, tenant=key.tenant or None),
    )
