"""What a target is told about the attempt that calls it."""

from typing import NamedTuple

from harebell.contract.names import (
    ATTEMPT,
    FENCING_TOKEN,
    IDEMPOTENCY_KEY,
    RUN_ID,
    SCHEDULE_ID,
    SCHEDULED_FOR,
)
from harebell.contract.scalars import instant_text
from harebell.contract.ticket import Ticket


class AttemptContext(NamedTuple):
    """`number` counts from 1; `token` is the fencing token, which only grows over a run's life."""

    ticket: Ticket
    number: int
    token: int

    def headers(self) -> dict[str, str]:
        """The same on HTTP requests and AMQP messages."""
        run_id = self.ticket.run_id
        return {
            RUN_ID: run_id,
            SCHEDULE_ID: str(self.ticket.schedule_id),
            SCHEDULED_FOR: instant_text(self.ticket.scheduled_for),
            ATTEMPT: str(self.number),
            FENCING_TOKEN: str(self.token),
            IDEMPOTENCY_KEY: run_id,
        }
