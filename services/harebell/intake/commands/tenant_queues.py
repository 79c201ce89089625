"""The tenants whose intake queues may exist: those of the settings, and those that intake sees."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Final

from harebell.messaging.topology.bus import tenant_intake_queue, tenant_query_queue

MAX_SEEN: Final = 200  # tenants without a setting, whose missing queues intake looks for
MAX_NAMED: Final = 5  # tenants in a warning


@dataclass(slots=True)
class TenantQueues:
    """The queues that intake looks for. AMQP has no list of queues, so intake needs names.

    `configured` returns the tenants of the settings. A tenant without a setting is seen when it
    sends a query or when it has a schedule. Only the tenants that the document of tenants names
    usually have a query queue.
    """

    configured: Callable[[], Collection[str]]
    documented: Callable[[], Collection[str]] = tuple
    _seen: set[str] = field(default_factory=set)

    def see(self, tenants: Iterable[str]) -> None:
        """Add tenants that may have an intake queue, up to `MAX_SEEN`."""
        for tenant in tenants:
            if len(self._seen) >= MAX_SEEN:
                return
            self._seen.add(tenant)

    def names(self) -> list[str]:
        """Return the names of the queues that may exist."""
        return [tenant_intake_queue(each).name for each in self._seen | {*self.configured()}]

    def unlikely(self) -> set[str]:
        """Return the names of the queues of tenants that only intake has seen."""
        seen = self._seen.difference(self.configured())
        return {tenant_intake_queue(each).name for each in seen}

    def query_names(self, consumed: Collection[str]) -> list[str]:
        """Return the names of the query queues that may exist.

        A tenant without an intake queue has no query queue, and the broker logs each vain look.
        """
        return [
            tenant_query_queue(each).name
            for each in self._seen | {*self.configured()}
            if tenant_intake_queue(each).name in consumed
        ]

    def unlikely_queries(self) -> set[str]:
        """Return the names of the query queues of tenants that the document does not name."""
        others = (self._seen | {*self.configured()}).difference(self.documented())
        return {tenant_query_queue(each).name for each in others}

    def warning(self, consumed: Collection[str]) -> str | None:
        """Return the tenants whose queue intake has found although no setting names them."""
        found = [
            tenant
            for tenant in sorted(self._seen.difference(self.configured()))
            if tenant_intake_queue(tenant).name in consumed
        ]
        if not found:
            return None
        more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
        return (
            f"The intake queues of {', '.join(found[:MAX_NAMED])}{more} have a consumer only "
            "because these tenants have a schedule or sent a query. Name them in "
            "HAREBELL_TENANTS_FILE or HAREBELL_INTAKE_TENANTS."
        )
