"""The AsyncAPI document and the JSON Schemas agree with the code that generates them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from tests.architecture.source_tree import SCHEMAS
from tests.tools.schemas.documents import ASYNCAPI, documents, write

from harebell.contract.commands import COMMANDS, BulkCommand
from harebell.contract.events import EVENT_DATA
from harebell.contract.queries import QUERIES
from harebell.messaging.topology.bus import SYSTEM

GENERATED: Final = documents()
DOCUMENT: Final[dict[str, Any]] = GENERATED[ASYNCAPI]
STALE: Final = "Run `python -m tests.tools.schemas` to write the documents again."
ERROR_RESPONSE: Final = "response.error"


def read(path: Path) -> Any:
    """Read a YAML or JSON file."""
    text = path.read_text(encoding="utf-8")
    return yaml.safe_load(text) if path.suffix == ".yaml" else orjson.loads(text)


def references(value: Any) -> Iterator[str]:
    """Yield every `$ref` in a JSON value."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == "$ref":
                yield item
            else:
                yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def resolves(reference: str, document: Any) -> bool:
    """Return whether the reference names a generated file or a part of the document."""
    path, _, inside = reference.partition("#")
    if path:
        return path in GENERATED
    for part in inside.strip("/").split("/"):
        document = document.get(part)
        if document is None:
            return False
    return True


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_document_agrees_with_the_code(path: str) -> None:
    assert read(SCHEMAS / path) == GENERATED[path], STALE


def test_schema_exists_only_for_a_message() -> None:
    files = {str(path.relative_to(SCHEMAS)) for path in SCHEMAS.glob("jsonschema/*")}

    assert files == set(GENERATED) - {ASYNCAPI}, STALE


def test_write_deletes_the_schema_of_a_message_that_no_longer_exists(tmp_path: Path) -> None:
    (tmp_path / "jsonschema").mkdir()
    stale = tmp_path / "jsonschema" / "schedule.explode.v1.json"
    stale.write_text("{}")

    write(tmp_path)

    assert not stale.exists()
    assert all(read(tmp_path / path) == value for path, value in GENERATED.items())


@pytest.mark.parametrize("path", sorted(GENERATED))
def test_reference_in_a_document_resolves(path: str) -> None:
    document = GENERATED[path]

    assert [each for each in references(document) if not resolves(each, document)] == []


@pytest.mark.parametrize("path", sorted(set(GENERATED) - {ASYNCAPI}))
def test_schema_contains_its_id_its_dialect_and_its_version(path: str) -> None:
    schema = GENERATED[path]

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["version"] == 1
    assert path == "jsonschema/{}.{}.json".format(*schema["$id"].split(":")[2:])


def test_exchange_is_a_channel_with_its_queues_and_bindings() -> None:
    amqp = [channel["bindings"]["amqp"] for channel in DOCUMENT["channels"].values()]
    queues = [(each["exchange"]["name"], queue) for each in amqp for queue in _queues_of(each)]

    assert {exchange.name for exchange in SYSTEM.exchanges} < {
        each["exchange"]["name"] for each in amqp
    }
    assert {
        (exchange, key, queue["name"]) for exchange, queue in queues for key in queue["routingKeys"]
    } == {(each.exchange, each.routing_key, each.queue) for each in SYSTEM.bindings}
    assert {queue["name"]: queue["arguments"] for _, queue in queues} == {
        queue.name: queue.arguments() for queue in SYSTEM.queues
    }


def _queues_of(amqp: dict[str, Any]) -> list[dict[str, Any]]:
    queues: list[dict[str, Any]] = amqp.get("x-queues", [])
    return queues


@pytest.mark.parametrize("verb", [*COMMANDS, *QUERIES])
def test_request_is_an_operation_whose_reply_may_be_an_error(verb: str) -> None:
    operation = DOCUMENT["operations"][verb]
    responses = [each["$ref"].rpartition("/")[2] for each in operation["reply"]["messages"]]
    is_bulk = verb in COMMANDS and issubclass(COMMANDS[verb], BulkCommand)

    assert operation["action"] == "receive"
    assert ERROR_RESPONSE in responses
    assert len(responses) == (3 if is_bulk else 2)


def test_document_contains_every_event() -> None:
    assert set(DOCUMENT["channels"]["events"]["messages"]) == {
        f"event.{verb}" for verb in EVENT_DATA
    }
