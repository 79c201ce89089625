"""The light client: publish schedule events, ask what became of them. No database."""

from harebell.client.asking import View
from harebell.client.client import Client
from harebell.contract.answers import (
    BulkResponse,
    DeadLetterResponse,
    ErrorResponse,
    ReplayJobResponse,
    RunResponse,
    ScheduleResponse,
)
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

__all__ = [
    "ResponseTimeout",
    "BrokerUnavailable",
    "DeadLetterResponse",
    "Client",
    "HarebellError",
    "ReplayJobResponse",
    "InvalidInput",
    "NotAllowed",
    "ErrorResponse",
    "CommandRejected",
    "RunResponse",
    "ScheduleResponse",
    "SchedulePut",
    "BulkResponse",
    "Unroutable",
    "View",
]
