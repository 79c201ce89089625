"""Headers and properties of calls: the names that are reserved, and the types of the values."""

import base64
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

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
from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, invalid, quoted, text_of_form
from harebell.contract.secret import (
    LITERAL_OR_REFERENCE,
    TAG_OF_LITERAL,
    TAG_OF_REFERENCE,
    SecretRef,
)
from harebell.contract.types import CheckedJson, Instant, Text, check_text

MAX_HEADER: Final = 4096  # characters of the value of an HTTP header
MAX_PROPERTY: Final = 255  # bytes of a short string of AMQP 0-9-1
# Bytes of all AMQP headers of a message. RabbitMQ reads the headers in one frame of 128 KiB, which
# also contains the properties and the headers of Harebell.
MAX_HEADERS_SIZE: Final = 96 * 1024

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
    except ValueError:  # also for a letter that is not ASCII
        raise invalid("invalid_base64", "The value must be valid base64.") from None
    return value


def check_short_string(value: str) -> str:
    """Return the text if AMQP can send it as a short string, and raise otherwise."""
    if (size := len(value.encode())) > MAX_PROPERTY:
        reason = f"The text must have at most {MAX_PROPERTY} bytes in UTF-8, not {size}."
        raise invalid("too_long", reason)
    return value


def amqp_size(value: object) -> int:
    """Return the bytes that a value occupies in an AMQP table at most.

    Raise an error for an integer or the name of a field that AMQP has no form for.
    """
    match value:
        case str():
            return 5 + len(value.encode())
        case bytes() | bytearray():
            return 5 + len(value)
        case list():
            return 5 + sum(map(amqp_size, value))
        case dict():
            return 5 + sum(_size_of_name(name) + amqp_size(value[name]) for name in value)
        case int() if not -(2**63) <= value < 2**63:
            reason = f"The integer {value} in a header must have at most 64 bits with its sign."
            raise invalid("integer_too_long", reason)
    return 9  # of a number or a time; a reference to a value counts when it is resolved


def _size_of_name(name: str) -> int:
    if (size := len(name.encode())) > MAX_PROPERTY:
        reason = (
            f"The header name {quoted(name)} must have at most {MAX_PROPERTY} bytes in UTF-8, "
            f"not {size}."
        )
        raise invalid("too_long", reason)
    return 1 + size


def check_headers_size(headers: Mapping[str, object]) -> None:
    """Raise an error if the AMQP headers of a message do not fit in a frame."""
    plain = {name: _plain(value) for name, value in headers.items()}
    if (size := amqp_size(plain)) > MAX_HEADERS_SIZE:
        reason = f"The headers must have at most {MAX_HEADERS_SIZE} bytes in AMQP, not {size}."
        raise invalid("too_large", reason)


def _plain(value: object) -> object:
    return value.value if isinstance(value, TypedHeader) else value


def _check_amqp_scalar(value: object) -> object:
    """Raise an error without the value, which may be a secret."""
    match value:
        case str():
            return check_text(value)
        case bool() | int() | float() | None:
            return value
        case list():
            form = 'A list needs the form {"json": []}.'
        case dict():
            form = "An object has the field secret, run, json, base64 or timestamp."
        case _:
            form = f"It must not be a {type(value).__name__}."
    reason = f"A header is a text, a number, a boolean, null or an object. {form}"
    raise invalid("invalid_header", reason)


HeaderName = Annotated[
    str,
    text_of_form(
        _HEADER_NAME, "have 1 to 128 letters, digits and signs that HTTP allows in a name"
    ),
]
HeaderText = Annotated[
    str, BeforeValidator(_check_header), StringConstraints(max_length=MAX_HEADER)
]
Reference = Annotated[SecretRef, TAG_OF_REFERENCE]
HeaderValue = Annotated[Annotated[HeaderText, TAG_OF_LITERAL] | Reference, LITERAL_OR_REFERENCE]
AmqpScalar = Annotated[str | bool | int | float | None, BeforeValidator(_check_amqp_scalar)]


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
        given = {
            name
            for name in self.model_fields_set
            if name == "json_" or getattr(self, name) is not None
        }
        if len(given) != 1:
            names = ", ".join(sorted(name.rstrip("_") for name in given))
            found = names or "none of them"
            reason = f"The header must have one of json, base64, timestamp, not {found}."
            raise invalid("invalid_header", reason)
        check_base64(self.base64)
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
    is_secret = isinstance(value, SecretRef) or (isinstance(value, dict) and "secret" in value)
    return _TAG_OF_SECRET if is_secret else _TAG_OF_SCALAR


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
ShortString = Annotated[
    Text, AfterValidator(check_short_string), Field(json_schema_extra={"maxLength": MAX_PROPERTY})
]
Property = Annotated[ShortString, StringConstraints(min_length=1)]
PropertyOrRun = Annotated[
    Annotated[Property, TAG_OF_LITERAL] | RunReference, Discriminator(_tag_of_property)
]
