"""A JSON Schema (2020-12) for each message: what one item of a body may be."""

from datetime import timedelta
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core.core_schema import WithDefaultSchema
from tests.tools.schemas.messages import VERSION, Described

from harebell.contract.message import Message
from harebell.contract.types import duration_text

DIALECT: Final = GenerateJsonSchema.schema_dialect


class _Plain(GenerateJsonSchema):
    """Says no more than the model: no titles that repeat names, no default that is null."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # pydantic's
        del schema
        return False

    def default_schema(self, schema: WithDefaultSchema) -> JsonSchemaValue:
        described = super().default_schema(schema)
        if "default" in described and described["default"] is None:
            del described["default"]
        return described

    def encode_default(self, dft: Any) -> Any:  # pydantic's
        """As a user would write it."""
        match dft:
            case timedelta():
                return duration_text(dft)
            case Message():
                return dft.model_dump(mode="json", by_alias=True, exclude_none=True)
            case _:
                return super().encode_default(dft)


def schema_of(message: Described) -> JsonSchemaValue:
    """What is accepted of it today; what we send is a part of that."""
    schema = message.model.model_json_schema(schema_generator=_Plain)
    named = {"title": message.name, "version": VERSION}
    return {"$schema": DIALECT, "$id": identifier(message), **schema, **named}


def identifier(message: Described) -> str:
    return f"urn:harebell:{message.name}:v{VERSION}"
