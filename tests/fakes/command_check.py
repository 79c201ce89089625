"""The check of a whole command message, without a bound of its CPU time."""

from datetime import datetime
from typing import Final

from harebell.contract.errors import Rejected
from harebell.intake.commands.check import (
    CheckResult,
    IncomingRequest,
    MessageCheck,
    reject_message,
)
from harebell.intake.commands.rules import IntakePolicy

DEFAULT_POLICY: Final = IntakePolicy()


def check(
    request: IncomingRequest, *, accepted_at: datetime, policy: IntakePolicy = DEFAULT_POLICY
) -> CheckResult:
    """Return the checked items and the rejections of a command message."""
    try:
        message = MessageCheck.begin(request, accepted_at=accepted_at, policy=policy)
    except Rejected as error:
        return reject_message(request, accepted_at, error)
    return message.result(list(message.items()))
