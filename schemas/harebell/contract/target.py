"""The field `target`: the call of a run, as one kind that is identified by its key."""

import base64
import binascii
from enum import StrEnum
from typing import Annotated, Any, Final

import orjson
from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from harebell.contract.amqp_names import IDEMPOTENCY_KEY
from harebell.contract.message import (
    UNION_TAG_PREFIX,
    StrictMessage,
    UnionByKey,
    empty_default,
    invalid,
    quoted,
)
from harebell.contract.secret import (
    LITERAL_OR_REFERENCE,
    TAG_OF_LITERAL,
    TAG_OF_REFERENCE,
    SecretRef,
)
from harebell.contract.types import CheckedJson, ShortText, Text, check_text

MAX_PAYLOAD: Final = 64 * 1024  # bytes as sent
MAX_HEADERS: Final = 64
MAX_HEADER: Final = 4096  # characters of a value
MAX_URL: Final = 2048

_RESERVED_PREFIXES: Final = ("harebell-", "webhook-")
_RESERVED: Final = {
    IDEMPOTENCY_KEY.lower(),
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
_ROUTING: Final = {"CC", "BCC"}  # the broker closes the channel if one of them is not a list
_HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"


class HttpMethod(StrEnum):
    """The HTTP methods that a target may use."""

    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"


def _is_reserved(name: str) -> bool:
    return name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIXES)


def _reserved_header(name: str) -> Exception:
    return invalid("reserved_header", f"The header {name} is reserved and cannot be set.")


def _check_header(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise invalid("invalid_header", "The header value must not contain control characters.")
    return value


HeaderName = Annotated[str, StringConstraints(pattern=_HEADER_NAME)]
HeaderText = Annotated[
    str, BeforeValidator(_check_header), StringConstraints(max_length=MAX_HEADER)
]
Reference = Annotated[SecretRef, TAG_OF_REFERENCE]
HeaderValue = Annotated[Annotated[HeaderText, TAG_OF_LITERAL] | Reference, LITERAL_OR_REFERENCE]
AmqpScalar = (
    Annotated[Text, Field(max_length=MAX_HEADER)]
    | bool
    | Annotated[int, Field(ge=-(2**63), lt=2**63)]
    | float
)
AmqpHeader = Annotated[Annotated[AmqpScalar, TAG_OF_LITERAL] | Reference, LITERAL_OR_REFERENCE]


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


class Payload(StrictMessage):
    """The body of a call: JSON, text or base64, at most one of them."""

    json_: CheckedJson | None = Field(default=None, alias="json")
    text: Text | None = None
    base64: str | None = None

    @field_validator("base64")
    @classmethod
    def _check_base64(cls, value: str | None) -> str | None:
        try:
            base64.b64decode(value or "", validate=True)
        except binascii.Error:
            raise invalid("invalid_base64", "The body must be valid base64.") from None
        return value

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


class HttpCall(Payload):
    """An HTTP request. A status of 200 to 299 is success."""

    method: HttpMethod = HttpMethod.POST
    url: Annotated[str, StringConstraints(max_length=MAX_URL, pattern=r"^https?://[^\s/]+\S*$")]
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS)] = (
        empty_default(dict)
    )
    userinfo: UserInfo | None = None  # instead of user information in the URL
    follow_redirects: bool = False

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, str | SecretRef]) -> dict[str, str | SecretRef]:
        for name in headers:
            if _is_reserved(name):
                raise _reserved_header(name)
        return headers

    @field_validator("userinfo")
    @classmethod
    def _check_userinfo(cls, userinfo: UserInfo | None, info: ValidationInfo) -> UserInfo | None:
        if userinfo is None:
            return None
        names = map(str.lower, info.data.get("headers", ()))
        authority = str(info.data.get("url", "")).partition("://")[2].partition("/")[0]
        if "authorization" in names or "@" in authority:
            reason = (
                "The call must have one of userinfo, an Authorization header and a user in url."
            )
            raise invalid("invalid_userinfo", reason)
        return userinfo


class AmqpMessage(Payload):
    """An AMQP message, published as mandatory and with a confirm.

    Harebell removes headers that begin with `x-`, because the broker sets them.
    """

    exchange: Annotated[ShortText, StringConstraints(max_length=127)]
    routing_key: Annotated[Text, StringConstraints(max_length=255)] = ""
    headers: Annotated[dict[ShortText, AmqpHeader], Field(max_length=MAX_HEADERS)] = empty_default(
        dict
    )

    @field_validator("exchange")
    @classmethod
    def _check_exchange(cls, exchange: str) -> str:
        if exchange.startswith(("harebell.", "amq.")):
            prefixes = "its name begins with `harebell.` or `amq.`"
            reason = f"The exchange {quoted(exchange)} is reserved, because {prefixes}."
            raise invalid("reserved_exchange", reason)
        return exchange

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, headers: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in headers.items() if not name.startswith("x-")}
        for name in kept:
            if _is_reserved(name) or name in _ROUTING:
                raise _reserved_header(name)
        return kept


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
