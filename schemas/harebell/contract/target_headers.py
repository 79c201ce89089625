"""Headers and properties of calls: the names that are reserved, and the types of the values."""

import base64
import binascii
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    model_serializer,
    model_validator,
)

from harebell.contract.amqp_names import IDEMPOTENCY_KEY
from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, invalid
from harebell.contract.secret import (
    LITERAL_OR_REFERENCE,
    TAG_OF_LITERAL,
    TAG_OF_REFERENCE,
    SecretRef,
)
from harebell.contract.types import CheckedJson, Instant, ShortText, Text

MAX_HEADER: Final = 4096  # characters of a value
MAX_TYPED_HEADER: Final = 16 * 1024  # bytes of JSON of a list, a table or a long text
MAX_PROPERTY: Final = 255  # bytes of a short string of AMQP 0-9-1

_RESERVED_PREFIXES: Final = ("harebell-", "webhook-")
_OF_HTTP: Final = {
    "connection",
    "content-length",
    "expect",  # the client would wait for a response before it sends the body
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
}
# RabbitMQ routes copies by `CC` and `BCC`, and closes the channel if one of them is not a list.
_ROUTING: Final = {"CC", "BCC"}
# RabbitMQ and its plugins read these headers of a message, or write them on the way.
_BROKER_HEADERS: Final = frozenset(
    {
        "x-acquired-count",
        "x-bcc",
        "x-cc",
        "x-death",
        "x-delivery-count",
        "x-exchange",
        "x-received-from",
        "x-recent-history-no-store",
        "x-routing-key",
        "x-shovelled",
        "x-shovelled-timestamp",
    }
)
_BROKER_PREFIXES: Final = ("x-first-death-", "x-last-death-", "x-opt-", "x-stream-")
_HEADER_NAME: Final = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"


def is_set_by_harebell(name: str) -> bool:
    """Return whether Harebell sets the header of this name in every call."""
    lower = name.lower()
    return lower == IDEMPOTENCY_KEY.lower() or lower.startswith(_RESERVED_PREFIXES)


def is_set_by_http(name: str) -> bool:
    """Return whether the HTTP client sets the header of this name, or a proxy reads it."""
    return name.lower() in _OF_HTTP


def is_routing_header(name: str) -> bool:
    """Return whether RabbitMQ routes copies of a message by the header of this name."""
    return name in _ROUTING


def is_read_by_broker(name: str) -> bool:
    """Return whether RabbitMQ or one of its plugins interprets the header of this name."""
    lower = name.lower()
    return name in _ROUTING or lower in _BROKER_HEADERS or lower.startswith(_BROKER_PREFIXES)


def _check_header(value: object) -> object:
    if isinstance(value, str) and not value.isprintable():
        raise invalid("invalid_header", "The header value must not contain control characters.")
    return value


def check_base64(value: str | None) -> str | None:
    """Return the value if it is base64, and raise otherwise."""
    try:
        base64.b64decode(value or "", validate=True)
    except binascii.Error:
        raise invalid("invalid_base64", "The value must be valid base64.") from None
    return value


def _check_property(value: str) -> str:
    if (size := len(value.encode())) > MAX_PROPERTY:
        reason = f"The property must have at most {MAX_PROPERTY} bytes in UTF-8, not {size}."
        raise invalid("too_long", reason)
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


class RunRef(StrictMessage):
    """A reference `{"run": "id"}` to the id of the run, which the executor writes."""

    run: Literal["id"]


class TypedHeader(StrictMessage):
    """A header value that is no scalar: JSON for a list, a table or null, bytes, or a time."""

    json_: CheckedJson | None = Field(default=None, alias="json")
    base64: str | None = None
    timestamp: Instant | None = None  # RabbitMQ stores whole seconds

    @model_validator(mode="after")
    def _check_value(self) -> "TypedHeader":
        if len(self.model_fields_set) != 1:
            names = ", ".join(sorted(name.rstrip("_") for name in self.model_fields_set))
            found = names or "none of them"
            reason = f"The header must have one of json, base64, timestamp, not {found}."
            raise invalid("invalid_header", reason)
        check_base64(self.base64)
        if (size := len(orjson.dumps(self.json_))) > MAX_TYPED_HEADER:
            reason = f"The header must have at most {MAX_TYPED_HEADER} bytes of JSON, not {size}."
            raise invalid("too_large", reason)
        return self

    @model_serializer(mode="wrap")
    def _keep_null(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Keep `"json": null`, which is a value. The other fields are omitted."""
        fields: dict[str, Any] = write(self)
        is_null = "json_" in self.model_fields_set and self.json_ is None
        return fields | {"json": None} if is_null else fields

    @property
    def value(self) -> Any:  # noqa: ANN401  # the types of AMQP tables
        """The value for a client library of AMQP."""
        if self.base64 is not None:
            return bytearray(base64.b64decode(self.base64))
        return self.json_ if self.timestamp is None else self.timestamp


_TYPED_FIELDS: Final = frozenset({"json", "base64", "timestamp"})
_TAG_OF_TYPED: Final = UNION_TAG_PREFIX + "typed"
_TAG_OF_RUN: Final = UNION_TAG_PREFIX + "run"
_TAG_OF_SECRET: Final = UNION_TAG_PREFIX + "reference"
_TAG_OF_SCALAR: Final = UNION_TAG_PREFIX + "literal"


def _tag_of_value(value: object) -> str:
    if isinstance(value, RunRef) or (isinstance(value, dict) and "run" in value):
        return _TAG_OF_RUN
    if isinstance(value, TypedHeader) or (isinstance(value, dict) and _TYPED_FIELDS & value.keys()):
        return _TAG_OF_TYPED
    return _TAG_OF_SECRET if isinstance(value, dict | SecretRef) else _TAG_OF_SCALAR


def _tag_of_property(value: object) -> str:
    return _TAG_OF_RUN if isinstance(value, dict | RunRef) else _TAG_OF_SCALAR


RunReference = Annotated[RunRef, Tag(_TAG_OF_RUN)]
AmqpHeader = Annotated[
    Annotated[AmqpScalar, TAG_OF_LITERAL]
    | Reference
    | RunReference
    | Annotated[TypedHeader, Tag(_TAG_OF_TYPED)],
    Discriminator(_tag_of_value),
]
Property = Annotated[ShortText, AfterValidator(_check_property)]
PropertyOrRun = Annotated[
    Annotated[Property, TAG_OF_LITERAL] | RunReference, Discriminator(_tag_of_property)
]
