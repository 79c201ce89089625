"""What every command may carry."""

from harebell.contract.message import StrictMessage
from harebell.contract.types import ShortText, Tenant


class CommandBase(StrictMessage):
    """What every command may carry. The routing key's tenant decides; a body may repeat it.

    `request_id` makes a retry recognisable; without it the AMQP `message_id` does.
    """

    tenant: Tenant | None = None
    request_id: ShortText | None = None
