"""A JSON Schema (2020-12) of one item of each message."""

from datetime import timedelta
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema
from tests.tools.schemas.messages import VERSION, MessageSpec

from harebell.contract.message import Message
from harebell.contract.types import duration_text

DIALECT: Final = GenerateJsonSchema.schema_dialect


class _ShortSchema(GenerateJsonSchema):
    """A generator without titles that repeat names and without defaults that are null."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # of the base class
        del schema
        return False

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if "default" in described and described["default"] is None:
            del described["default"]
        return described

    def encode_default(self, dft: Any) -> Any:  # of the base class
        """Return the default in the form that users write."""
        match dft:
            case timedelta():
                return duration_text(dft)
            case Message():
                return dft.model_dump(mode="json", by_alias=True, exclude_none=True)
            case _:
                return super().encode_default(dft)


def schema_of(message: MessageSpec) -> JsonSchemaValue:
    """Return the schema of the values that the model accepts."""
    schema = message.model.model_json_schema(schema_generator=_ShortSchema)
    named = {"title": message.name, "version": VERSION}
    return {"$schema": DIALECT, "$id": identifier(message), **schema, **named}


def identifier(message: MessageSpec) -> str:
    """Return the URN of a schema."""
    return f"urn:harebell:{message.name}:v{VERSION}"
