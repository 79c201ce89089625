"""`target`: what a run does. One kind, known by the key present."""

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
    field_validator,
    model_serializer,
    model_validator,
)

from harebell.contract.amqp_names import IDEMPOTENCY_KEY
from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, empty_default, invalid
from harebell.contract.types import CheckedJson, ShortText, Text, check_text

MAX_PAYLOAD: Final = 64 * 1024  # bytes as sent
MAX_HEADERS: Final = 64
MAX_HEADER: Final = 4096  # characters of a value
MAX_URL: Final = 2048

_RESERVED_PREFIX: Final = "harebell-"
_RESERVED: Final = {
    IDEMPOTENCY_KEY.lower(),
    *("connection", "content-length", "host", "keep-alive", "proxy-authenticate"),
    *("proxy-authorization", "te", "trailer", "transfer-encoding", "upgrade"),
}
_ROUTING: Final = {"CC", "BCC"}  # the broker routes by them; a scalar there closes the channel
_HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"


class HttpMethod(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"
    HEAD = "HEAD"


def _is_reserved(name: str) -> bool:
    return name.lower() in _RESERVED or name.lower().startswith(_RESERVED_PREFIX)


def _check_header(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise invalid("invalid_header", "may not contain control characters")
    return value


HeaderName = Annotated[str, StringConstraints(pattern=_HEADER_NAME)]
HeaderValue = Annotated[
    str, BeforeValidator(_check_header), StringConstraints(max_length=MAX_HEADER)
]
AmqpHeader = (
    Annotated[Text, Field(max_length=MAX_HEADER)]
    | bool
    | Annotated[int, Field(ge=-(2**63), lt=2**63)]
    | float
)


class Payload(StrictMessage):
    """A body is JSON, text or base64, one of them or none."""

    json_: CheckedJson | None = Field(default=None, alias="json")
    text: Text | None = None
    base64: str | None = None

    @field_validator("base64")
    @classmethod
    def _decodes(cls, value: str | None) -> str | None:
        try:
            base64.b64decode(value or "", validate=True)
        except binascii.Error:
            raise invalid("invalid_base64", "is not base64") from None
        return value

    @model_validator(mode="after")
    def _one_body(self) -> "Payload":
        given = {"json_", "text", "base64"} & self.model_fields_set
        if len(given) > 1:
            raise invalid("invalid_payload", "has at most one of json, text, base64")
        if len(self.body() or b"") > MAX_PAYLOAD:
            raise invalid("too_large", f"the payload is over {MAX_PAYLOAD} bytes")
        return self

    @model_serializer(mode="wrap")
    def _keep_null(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """`"json": null` is a body, though nulls are left out elsewhere."""
        fields: dict[str, Any] = write(self)
        given = "json_" in self.model_fields_set
        return fields | {"json": None} if given and self.json_ is None else fields

    def body(self) -> bytes | None:
        """The bytes to send; None when there is no body."""
        if "json_" in self.model_fields_set:
            return orjson.dumps(self.json_)
        if self.text is not None:
            return self.text.encode()
        return base64.b64decode(self.base64) if self.base64 is not None else None

    def content_type(self) -> str | None:
        """What the body is, where the user's headers do not say it."""
        if "json_" in self.model_fields_set:
            return "application/json"
        if self.text is not None:
            return "text/plain; charset=utf-8"
        return "application/octet-stream" if self.base64 is not None else None


class HttpCall(Payload):
    """2xx is success. Redirects are followed only when asked for."""

    method: HttpMethod = HttpMethod.POST
    url: Annotated[str, StringConstraints(max_length=MAX_URL, pattern=r"^https?://[^\s/]+\S*$")]
    headers: Annotated[dict[HeaderName, HeaderValue], Field(max_length=MAX_HEADERS)] = (
        empty_default(dict)
    )
    follow_redirects: bool = False

    @field_validator("headers")
    @classmethod
    def _not_ours(cls, headers: dict[str, str]) -> dict[str, str]:
        for name in headers:
            if _is_reserved(name):
                raise invalid("reserved_header", f"{name} cannot be set")
        return headers


class AmqpMessage(Payload):
    """Published confirmed and mandatory; `x-*` headers belong to the broker and are stripped."""

    exchange: Annotated[ShortText, StringConstraints(max_length=127)]
    routing_key: Annotated[Text, StringConstraints(max_length=255)] = ""
    headers: Annotated[dict[ShortText, AmqpHeader], Field(max_length=MAX_HEADERS)] = empty_default(
        dict
    )

    @field_validator("exchange")
    @classmethod
    def _not_ours(cls, exchange: str) -> str:
        if exchange.startswith(("harebell.", "amq.")):
            raise invalid("reserved_exchange", "an exchange of another service, not ours or amq.*")
        return exchange

    @field_validator("headers")
    @classmethod
    def _without_the_brokers(cls, headers: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in headers.items() if not name.startswith("x-")}
        for name in kept:
            if _is_reserved(name) or name in _ROUTING:
                raise invalid("reserved_header", f"{name} cannot be set")
        return kept


class TaskCall(StrictMessage):
    """A Python callable that executors find by entry point group `harebell.tasks`."""

    name: Annotated[ShortText, StringConstraints(max_length=128)]
    args: Annotated[dict[Annotated[str, BeforeValidator(check_text)], CheckedJson], Field()] = (
        empty_default(dict)
    )

    @field_validator("args")
    @classmethod
    def _small(cls, args: dict[str, Any]) -> dict[str, Any]:
        if len(orjson.dumps(args)) > MAX_PAYLOAD:
            raise invalid("too_large", f"args are over {MAX_PAYLOAD} bytes")
        return args


class HttpTarget(StrictMessage):
    http: HttpCall


class AmqpTarget(StrictMessage):
    amqp: AmqpMessage


class TaskTarget(StrictMessage):
    task: TaskCall


_KINDS: Final[dict[str, type[StrictMessage]]] = {
    "http": HttpTarget,
    "amqp": AmqpTarget,
    "task": TaskTarget,
}
_TAGS: Final[dict[type, str]] = {model: UNION_TAG_PREFIX + kind for kind, model in _KINDS.items()}


def _check_kind(value: object) -> object:
    if not isinstance(value, dict):
        if isinstance(value, StrictMessage):
            return value
        raise invalid("invalid_target", "must be an object")
    if len(value) != 1 or next(iter(value)) not in _KINDS:
        found = ", ".join(map(str, value)) or "nothing"
        raise invalid(
            "invalid_target", f"has exactly one of {', '.join(_KINDS)}; found {found[:80]}"
        )
    return value


def _kind(value: object) -> str | None:
    if isinstance(value, dict):
        present = _KINDS.keys() & value
        return UNION_TAG_PREFIX + present.pop() if present else None
    return _TAGS.get(type(value))


Target = Annotated[
    Annotated[HttpTarget, Tag(UNION_TAG_PREFIX + "http")]
    | Annotated[AmqpTarget, Tag(UNION_TAG_PREFIX + "amqp")]
    | Annotated[TaskTarget, Tag(UNION_TAG_PREFIX + "task")],
    Discriminator(_kind),
    BeforeValidator(_check_kind),
    Field(description="exactly one of http, amqp, task"),
]
