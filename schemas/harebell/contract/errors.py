"""Every error we raise on purpose, as a tree. The branch decides what happens to the message.

* HarebellError             has a stable `code`, and optionally the `field` it is about
  x Rejected                the same message can never succeed: it is refused, or dead-lettered
    - Malformed             not JSON, or not the JSON of this message
    - InvalidCron           has the position of the fault
    - UnknownTimezone
    - NotAllowed            the publisher may not do this
    - NotFound
    - Conflict              the key is taken by another body, or the version is not the expected one
    - PrivateAddress        the target resolves to an address that is not allowed
    - Refused               an answer of Harebell's, seen from the client
  x Transient               the same message may succeed later: it is held and tried again
    - BrokerUnavailable     not connected, or not confirmed in time; the outcome is unknown
    - Unroutable            the broker returned the message: no queue is bound
    - DatabaseUnavailable
    - AnswerTimeout         seen from the client: published, but no answer came in time
"""


class HarebellError(Exception):
    """The root; never raised itself."""

    code: str

    def __init__(self, reason: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field
        self.code = code or self.code


class Rejected(HarebellError):
    code = "rejected"


class Transient(HarebellError):
    code = "transient"


class InvalidInput(Rejected):
    """Narrowed by the instance's code: `not_json`, `unknown_field`, `too_large`, ..."""

    code = "invalid"


class InvalidCron(Rejected):
    """`position` counts characters from 0 in the expression as it was given."""

    code = "invalid_cron"

    def __init__(self, expression: str, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason)
        self.expression = expression
        self.position = position


class UnknownTimezone(Rejected):
    code = "unknown_timezone"

    def __init__(self, zone: str) -> None:
        super().__init__(f"{zone!r} is not an IANA time zone")
        self.zone = zone


class NotAllowed(Rejected):
    code = "not_allowed"


class NotFound(Rejected):
    code = "not_found"


class Conflict(Rejected):
    code = "conflict"


class PrivateAddress(Rejected):
    code = "private_address"


class CommandRejected(Rejected):
    """A refusal as it came back; the code is the one in the answer."""

    code = "refused"


class BrokerUnavailable(Transient):
    code = "broker_unavailable"


class Unroutable(Transient):
    code = "unroutable"


class DatabaseUnavailable(Transient):
    code = "database_unavailable"


class ResponseTimeout(Transient):
    code = "response_timeout"
