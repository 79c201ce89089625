"""Events of rejections, whose number the budget of each tenant bounds."""

from collections.abc import Iterable

import structlog

from harebell.domain.event_budget import EventBudget
from harebell.messaging import metrics
from harebell.messaging.event_publisher import OutgoingEvent, publish_events
from harebell.messaging.publisher import Publisher
from harebell.runtime.clock import monotonic

log = structlog.get_logger()


class RejectionEvents:
    """The publisher of `schedule.rejected`, which omits the events over the budget of a tenant.

    Without the budget, a tenant that reads these events and sends each as a command starts a loop.
    """

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._budget = EventBudget()

    async def publish(self, events: Iterable[OutgoingEvent]) -> None:
        """Publish the events within the budgets, and count the others. Raise no error."""
        groups: dict[str, list[OutgoingEvent]] = {}
        for event in events:
            groups.setdefault(event.tenant, []).append(event)
        allowed: list[OutgoingEvent] = []
        for tenant, group in groups.items():
            taken = self._budget.take(tenant, len(group), monotonic())
            allowed += group[:taken]
            if taken < len(group):
                metrics.OMITTED_EVENTS.inc(len(group) - taken)
                log.info("rejection events omitted", tenant=tenant, events=len(group) - taken)
        if allowed:
            await publish_events(self._publisher, allowed)
