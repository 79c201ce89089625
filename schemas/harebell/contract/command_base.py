"""The base of every command."""

from harebell.contract.message import StrictMessage
from harebell.contract.types import ShortText, Tenant


class CommandBase(StrictMessage):
    """The fields that every command may have.

    `tenant` may repeat the tenant of the routing key, which decides. `request_id` identifies a
    repeat of the command. Without this field, the AMQP `message_id` identifies the repeat.
    """

    tenant: Tenant | None = None
    request_id: ShortText | None = None

    @property
    def is_bulk(self) -> bool:
        """Return whether the command starts a bulk operation."""
        return False
