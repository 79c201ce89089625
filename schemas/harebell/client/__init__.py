"""The light client: publish schedule events, ask what became of them. No database."""

from harebell.client.asking import View
from harebell.client.client import Harebell
from harebell.contract.answers import (
    DlqAnswer,
    JobAnswer,
    Refusal,
    RunAnswer,
    ScheduleAnswer,
    SelectionAnswer,
)
from harebell.contract.commands import SchedulePut
from harebell.contract.errors import (
    AnswerTimeout,
    BrokerUnavailable,
    HarebellError,
    Malformed,
    NotAllowed,
    Refused,
    Unroutable,
)

__all__ = [
    "AnswerTimeout",
    "BrokerUnavailable",
    "DlqAnswer",
    "Harebell",
    "HarebellError",
    "JobAnswer",
    "Malformed",
    "NotAllowed",
    "Refusal",
    "Refused",
    "RunAnswer",
    "ScheduleAnswer",
    "SchedulePut",
    "SelectionAnswer",
    "Unroutable",
    "View",
]
