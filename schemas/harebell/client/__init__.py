"""The light client: publish schedule events, ask what became of them. No database."""

from harebell.client.base import View
from harebell.client.client import Client
from harebell.contract.commands import SchedulePut
from harebell.contract.errors import (
    BrokerUnavailable,
    CommandRejected,
    HarebellError,
    InvalidInput,
    NotAllowed,
    ResponseTimeout,
    Unroutable,
)
from harebell.contract.responses import (
    BulkResponse,
    DeadLetterResponse,
    ErrorResponse,
    ReplayJobResponse,
    RunResponse,
    ScheduleResponse,
)

__all__ = [
    "BrokerUnavailable",
    "BulkResponse",
    "Client",
    "CommandRejected",
    "DeadLetterResponse",
    "ErrorResponse",
    "HarebellError",
    "InvalidInput",
    "NotAllowed",
    "ReplayJobResponse",
    "ResponseTimeout",
    "RunResponse",
    "SchedulePut",
    "ScheduleResponse",
    "Unroutable",
    "View",
]
