"""The field `target`: the call of a run, as one kind that is identified by its key."""

import base64
import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, Final, Literal, assert_never
from urllib.parse import unquote

import orjson
from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    field_validator,
    model_serializer,
    model_validator,
)

from harebell.contract.message import (
    UNION_TAG_PREFIX,
    StrictMessage,
    UnionByKey,
    empty_default,
    invalid,
    quoted,
    text_of_form,
)
from harebell.contract.secret import SecretRef
from harebell.contract.target_headers import (
    AmqpHeader,
    HeaderName,
    HeaderValue,
    Property,
    PropertyOrRun,
    ShortString,
    check_base64,
    check_headers_size,
    is_read_by_broker,
    is_set_by_harebell,
    is_set_by_http,
)
from harebell.contract.types import (
    MILLISECOND,
    CheckedJson,
    Duration,
    HeartbeatTimeout,
    Instant,
    MaxDelegation,
    ShortText,
    Text,
    check_text,
    duration_text,
)

MAX_PAYLOAD: Final = 64 * 1024  # bytes as sent
MAX_HEADERS: Final = 64
MAX_URL: Final = 2048
DEFAULT_HEARTBEAT: Final = timedelta(minutes=1)
DEFAULT_MAX_DURATION: Final = timedelta(days=7)
MAX_EXPIRATION: Final = timedelta(milliseconds=2**32 - 1)  # RabbitMQ closes the channel beyond it

_RESERVED_EXCHANGES: Final = ("harebell.", "amq.")


class HttpMethod(StrEnum):
    """The HTTP methods that a target may use."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"


def _reserved_header(name: str) -> Exception:
    return invalid("reserved_header", f"The header {name} is reserved and cannot be set.")


class UserInfo(StrictMessage):
    """The user and the password of an HTTP request, sent as Basic authentication."""

    user: HeaderValue
    password: HeaderValue = ""

    @field_validator("user")
    @classmethod
    def _check_user(cls, user: str | SecretRef) -> str | SecretRef:
        if isinstance(user, str) and ":" in user:
            reason = "The user must not contain a colon, which ends the user in a header."
            raise invalid("invalid_userinfo", reason)
        return user


def userinfo_of(url: str) -> str | None:
    """Return the part of the URL before the at sign of its host, or None."""
    authority = re.split(r"[/?#]", url.partition("://")[2], maxsplit=1)[0]
    userinfo, at, _ = authority.rpartition("@")
    return userinfo if at else None


def _check_userinfo(userinfo: str) -> None:
    """Raise an error if the user or the password could not be sent as UTF-8."""
    user, _, password = userinfo.partition(":")
    try:
        name = unquote(user, errors="strict")
        unquote(password, errors="strict")
    except UnicodeDecodeError:
        reason = "The user and the password in the URL must be escaped as UTF-8."
        raise invalid("invalid_userinfo", reason) from None
    if ":" in name:
        reason = "The user in the URL must not contain a colon, which ends the user in a header."
        raise invalid("invalid_userinfo", reason)


class Payload(StrictMessage):
    """The body of a call: JSON, text or base64, at most one of them."""

    json_: CheckedJson | None = Field(default=None, alias="json")
    text: Text | None = None
    base64: str | None = None

    @field_validator("base64")
    @classmethod
    def _check_base64(cls, value: str | None) -> str | None:
        return check_base64(value)

    @model_validator(mode="after")
    def _check_body(self) -> "Payload":
        given = {"json_", "text", "base64"} & self.model_fields_set
        if len(given) > 1:
            names = ", ".join(sorted(name.rstrip("_") for name in given))
            reason = f"The call must have at most one of json, text, base64, not {names}."
            raise invalid("invalid_payload", reason)
        if (size := len(self.body() or b"")) > MAX_PAYLOAD:
            reason = f"The payload must have at most {MAX_PAYLOAD} bytes, not {size}."
            raise invalid("too_large", reason)
        return self

    @model_serializer(mode="wrap")
    def _keep_null(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep `"json": null`, which is a body. Other fields that are null are omitted."""
        fields: dict[str, Any] = write(self)
        given = "json_" in self.model_fields_set
        return fields | {"json": None} if given and self.json_ is None else fields

    def body(self) -> bytes | None:
        """Return the bytes to send, or None without a body."""
        if "json_" in self.model_fields_set:
            return orjson.dumps(self.json_)
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64) if self.base64 is not None else None

    def content_type(self) -> str | None:
        """Return the content type of the body, for headers that do not contain one."""
        if "json_" in self.model_fields_set:
            return "application/json"
        if self.text is not None:
            return "text/plain; charset=utf-8"
        return "application/octet-stream" if self.base64 is not None else None


@dataclass(frozen=True, slots=True)
class Delegation:
    """The bounds of a delegated run.

    The worker sends a heartbeat within `heartbeat` after the previous one, and completes the run
    within `max_duration` after its start.
    """

    heartbeat: timedelta
    max_duration: timedelta


class DelegableCall(Payload):
    """A call whose run a worker may complete.

    With the completion `worker`, the accepted call delegates the run to a worker. The run stays
    running, without a slot of an executor, until the worker completes it.
    """

    completion: Literal["worker"] | None = None  # null: the end of the call completes the run
    heartbeat: HeartbeatTimeout | None = None  # null: DEFAULT_HEARTBEAT
    max_duration: MaxDelegation | None = None  # null: DEFAULT_MAX_DURATION

    @model_validator(mode="after")
    def _check_delegation(self) -> "DelegableCall":
        heartbeat, longest = self.heartbeat, self.max_duration
        if self.completion is None and (heartbeat is not None or longest is not None):
            reason = 'The fields heartbeat and max_duration need the field "completion": "worker".'
            raise invalid("invalid_completion", reason)
        if (heartbeat or DEFAULT_HEARTBEAT) > (longest or DEFAULT_MAX_DURATION):
            text = duration_text(longest or DEFAULT_MAX_DURATION)
            reason = f"The heartbeat must be at most {text}, the max_duration of the run."
            raise invalid("invalid_completion", reason)
        return self

    @property
    def delegation(self) -> Delegation | None:
        """The bounds of the delegated run, or None if the end of the call completes the run."""
        if self.completion is None:
            return None
        return Delegation(
            self.heartbeat or DEFAULT_HEARTBEAT, self.max_duration or DEFAULT_MAX_DURATION
        )


class HttpCall(DelegableCall):
    """An HTTP request. A status of 200 to 299 is success.

    With the completion `worker`, the status 202 delegates the run.
    """

    method: HttpMethod = HttpMethod.POST
    url: Annotated[
        str,
        text_of_form(
            r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s/]+\S*$",
            "begin with http:// or https://, have a host, and contain no space",
            max_length=MAX_URL,
        ),
    ]
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS)] = (
        empty_default(dict)
    )
    userinfo: UserInfo | None = None  # instead of user information in the URL
    follow_redirects: bool = False

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        for name in headers:
            if is_set_by_http(name) or is_set_by_harebell(name):
                raise _reserved_header(name)
        return headers

    @model_validator(mode="after")
    def _check_credentials(self) -> "HttpCall":
        in_url = userinfo_of(self.url)
        in_header = "authorization" in map(str.lower, self.headers)
        if (in_url is not None) + in_header + (self.userinfo is not None) > 1:
            reason = (
                "The call must have one of userinfo, an Authorization header and a user in url."
            )
            raise invalid("invalid_userinfo", reason)
        if in_url is not None:
            _check_userinfo(in_url)
        return self


class AmqpMessage(DelegableCall):
    """An AMQP message, published as mandatory, persistent and with a confirm.

    `content_type` replaces the content type of the body, `message_id` the id of the run, and
    `app_id` the name of Harebell. With `absent_properties: omit`, the content type and `app_id`
    stay absent without a field. The property `user_id` is that of the executor and has no field.
    With the completion `worker`, the confirm delegates the run.
    """

    exchange: ShortString
    routing_key: ShortString = ""
    headers: Annotated[dict[Text, AmqpHeader], Field(max_length=MAX_HEADERS)] = empty_default(dict)
    type: Property | None = None
    priority: Annotated[int, Field(ge=0, le=255, strict=True)] | None = None
    correlation_id: PropertyOrRun | None = None
    reply_to: Property | None = None
    expiration: Duration | None = None
    message_id: Property | None = None
    app_id: Property | None = None
    content_type_: Property | None = Field(default=None, alias="content_type")
    content_encoding: Property | None = None
    timestamp: Instant | None = None  # RabbitMQ stores whole seconds
    absent_properties: Literal["omit"] | None = None  # null: Harebell sets defaults

    @field_validator("exchange")
    @classmethod
    def _check_exchange(cls, exchange: str) -> str:
        if not exchange:
            reason = (
                "The default exchange reaches every queue, so it cannot be a target. "
                "Bind the queue to an exchange of the tenant and publish there."
            )
            raise invalid("reserved_exchange", reason)
        if "\n" in exchange or "\r" in exchange:
            reason = "The name must not contain a line break, which RabbitMQ removes from names."
            raise invalid("invalid_exchange", reason)
        if exchange.startswith(_RESERVED_EXCHANGES):
            prefixes = "its name begins with `harebell.` or `amq.`"
            reason = f"The exchange {quoted(exchange)} is reserved, because {prefixes}."
            raise invalid("reserved_exchange", reason)
        return exchange

    @field_validator("reply_to")
    @classmethod
    def _check_reply_to(cls, queue: str | None) -> str | None:
        if queue is not None and queue.startswith(_RESERVED_EXCHANGES):
            prefixes = "its name begins with `harebell.` or `amq.`"
            reason = f"The queue {quoted(queue)} must not receive replies, because {prefixes}."
            raise invalid("reserved_queue", reason)
        return queue

    @field_validator("expiration")
    @classmethod
    def _check_expiration(cls, expiration: timedelta | None) -> timedelta | None:
        if expiration is not None and expiration > MAX_EXPIRATION:
            longest = MAX_EXPIRATION // MILLISECOND
            found = expiration // MILLISECOND
            reason = f"The expiration must be at most {longest} ms, not {found} ms."
            raise invalid("invalid_duration", reason)
        return expiration

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, Any]) -> dict[str, Any]:
        for name in headers:
            if is_set_by_harebell(name):
                raise _reserved_header(name)
            if is_read_by_broker(name):
                reason = f"The header {name} cannot be set, because RabbitMQ interprets it."
                raise invalid("reserved_header", reason)
        check_headers_size(headers)
        return headers

    def content_type(self) -> str | None:
        """Return the property `content_type`, or that of the body."""
        return self.content_type_ or (None if self.is_bare else super().content_type())

    @property
    def is_bare(self) -> bool:
        """The choice that the content type and `app_id` stay absent without a field."""
        return self.absent_properties is not None


class TaskCall(StrictMessage):
    """A call of a Python function in the entry point group `harebell.tasks` of an executor."""

    name: Annotated[ShortText, StringConstraints(max_length=128)]
    args: Annotated[dict[Annotated[str, BeforeValidator(check_text)], CheckedJson], Field()] = (
        empty_default(dict)
    )

    @field_validator("args")
    @classmethod
    def _check_size(cls, args: dict[str, Any]) -> dict[str, Any]:
        if (size := len(orjson.dumps(args))) > MAX_PAYLOAD:
            reason = f"The arguments must have at most {MAX_PAYLOAD} bytes, not {size}."
            raise invalid("too_large", reason)
        return args


class HttpTarget(StrictMessage):
    """A target that is an HTTP request."""

    http: HttpCall


class AmqpTarget(StrictMessage):
    """A target that is an AMQP message."""

    amqp: AmqpMessage


class TaskTarget(StrictMessage):
    """A target that is a task."""

    task: TaskCall


def delegation_of(target: HttpTarget | AmqpTarget | TaskTarget) -> Delegation | None:
    """Return the bounds of a delegated run, or None for a run that its call completes."""
    match target:
        case HttpTarget(http=call):
            return call.delegation
        case AmqpTarget(amqp=message):
            return message.delegation
        case TaskTarget():
            return None
        case _:
            assert_never(target)


_TARGET: Final = UnionByKey(
    {"http": HttpTarget, "amqp": AmqpTarget, "task": TaskTarget}, code="invalid_target"
)

Target = Annotated[
    Annotated[HttpTarget, Tag(UNION_TAG_PREFIX + "http")]
    | Annotated[AmqpTarget, Tag(UNION_TAG_PREFIX + "amqp")]
    | Annotated[TaskTarget, Tag(UNION_TAG_PREFIX + "task")],
    Discriminator(_TARGET.tag),
    BeforeValidator(_TARGET.check),
    Field(description="exactly one of http, amqp, task"),
]
