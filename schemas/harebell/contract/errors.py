"""The errors of Harebell, as a tree. The branch decides what happens to the message.

* HarebellError             has a stable `code` and optionally the `field` at fault
  x Rejected                the same message can never succeed: it is rejected or dead-lettered
    - InvalidInput          not JSON, or not the JSON of this message
    - InvalidCron           contains the position of the error
    - UnknownTimezone       a time zone that the time zone database does not contain
    - NotAllowed            the publisher has no permission
    - QuotaExceeded         the tenant has used up a quota for now
    - NotFound              no such schedule, run or dead letter
    - Conflict              another body exists for the key, or the version is not the expected one
    - PrivateAddress        the target has an address that is not allowed
    - TooExpensive          the request needs more CPU time than one request may use
    - InternalError         a defect of Harebell, which its log describes
    - CommandRejected       an error response of Harebell, raised by the client
  x Transient               the same message may succeed later: it is retried
    - BrokerUnavailable     not connected, or not confirmed in time; the outcome is unknown
    - Unroutable            the broker returned the message: no queue is bound
    - DatabaseUnavailable   PostgreSQL is not reachable, or it ended the statement
    - ResponseTimeout       raised by the client: published, but no response in time
    - SecretMissing         a referenced secret has no readable file, or its value is unusable
    - SigningKeyInvalid     a file without a signing key, which an operator may correct
"""


class HarebellError(Exception):
    """The root of the tree, which no code raises."""

    code: str

    def __init__(self, reason: str, *, field: str | None = None, code: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.field = field
        self.code = code or self.code


class Rejected(HarebellError):
    """The branch of the errors that a repeat of the message cannot avoid."""

    code = "rejected"


class Transient(HarebellError):
    """The branch of the errors that a later repeat of the message may avoid."""

    code = "transient"


class InvalidInput(Rejected):
    """Input that does not have the required form.

    An instance usually has a narrower code: `not_json`, `unknown_field`, `too_large` and others.
    """

    code = "invalid"


class InvalidCron(Rejected):
    """A cron expression with an error. `position` counts its characters from 0."""

    code = "invalid_cron"

    def __init__(self, expression: str, reason: str, *, position: int | None = None) -> None:
        super().__init__(reason)
        self.expression = expression
        self.position = position


class UnknownTimezone(Rejected):
    """A time zone name that the time zone database does not contain."""

    code = "unknown_timezone"

    def __init__(self, name: str) -> None:
        super().__init__(f"The time zone must be an IANA name, not {name!r}.")
        self.name = name


class NotAllowed(Rejected):
    """A request for which the publisher has no permission."""

    code = "not_allowed"

    def __init__(
        self,
        reason: str,
        *,
        field: str | None = None,
        code: str | None = None,
        rule: str | None = None,
    ) -> None:
        """Create the error. `rule` is the field of the tenant policy that forbids the request."""
        super().__init__(reason, field=field, code=code)
        self.rule = rule


class QuotaExceeded(Rejected):
    """A request beyond a quota of its tenant. The request may succeed after `retry_after` s."""

    code = "quota_exceeded"

    def __init__(
        self, reason: str, *, rule: str, retry_after: float, field: str | None = None
    ) -> None:
        """Create the error. `rule` is the field of `quotas`, such as `puts_per_second`."""
        super().__init__(reason, field=field)
        self.rule = rule
        self.retry_after = retry_after


class NotFound(Rejected):
    """A schedule, a run or a dead letter that the tenant does not have."""

    code = "not_found"


class Conflict(Rejected):
    """A key with another body, or a version that is not the expected one."""

    code = "conflict"


class PrivateAddress(Rejected):
    """A target address that is neither public nor in an allowed network."""

    code = "private_address"


class TooExpensive(Rejected):
    """A request that needs more CPU time than one request may use."""

    code = "too_expensive"


class InternalError(Rejected):
    """A failure that no rule of a service foresaw. The log of the service has the error `id`."""

    code = "internal_error"

    def __init__(self, id_: str) -> None:
        reason = f"A service failed on this message, and its log describes the error {id_}."
        super().__init__(reason)


class CommandRejected(Rejected):
    """An error response of Harebell. An instance has the code of that response."""

    def __init__(
        self,
        reason: str,
        *,
        field: str | None = None,
        code: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        """Create the error. After `retry_after` s, a quota permits the request again."""
        super().__init__(reason, field=field, code=code)
        self.retry_after = retry_after


class BrokerUnavailable(Transient):
    """A broker that is not connected, or that did not confirm a message in time."""

    code = "broker_unavailable"


class Unroutable(Transient):
    """A message that the broker returned, because no queue is bound for it."""

    code = "unroutable"


class DatabaseUnavailable(Transient):
    """A database that is not reachable, or that ended a statement."""

    code = "database_unavailable"


class ResponseTimeout(Transient):
    """A published request without a response in time. Its outcome is unknown."""

    code = "response_timeout"


class SecretMissing(Transient):
    """A secret without a file, or with the code `secret_invalid` a file with an unusable value.

    The reason contains the name of the secret and never a part of its value.
    """

    code = "secret_missing"
    invalid_code = "secret_invalid"


class SigningKeyInvalid(Transient):
    """A signing key without the required form. No call is sent unsigned instead."""

    code = "signing_key_invalid"
