"""The published documents say what the code does: they are generated, and complete."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import yaml
from tests.tools.schemas.documents import ASYNCAPI, documents, write

from harebell.contract.commands import COMMANDS, BulkCommand
from harebell.contract.events import EVENT_DATA
from harebell.contract.queries import QUERIES
from harebell.messaging.topology.bus import SYSTEM

FOLDER: Final = Path(__file__).parents[2] / "schemas"
MADE: Final = documents()
DOCUMENT: Final[dict[str, Any]] = MADE[ASYNCAPI]
OUT_OF_DATE: Final = "run `python -m harebell.dev.schemas`"


def written(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    return yaml.safe_load(text) if path.suffix == ".yaml" else orjson.loads(text)


def references(value: Any) -> Iterator[str]:
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
    path, _, inside = reference.partition("#")
    if path:
        return path in MADE
    for part in inside.strip("/").split("/"):
        document = document.get(part)
        if document is None:
            return False
    return True


@pytest.mark.parametrize("path", sorted(MADE))
def test_what_is_published_is_what_the_code_says(path: str) -> None:
    assert written(FOLDER / path) == MADE[path], OUT_OF_DATE


def test_nothing_is_published_that_the_code_no_longer_has() -> None:
    published = {str(path.relative_to(FOLDER)) for path in FOLDER.glob("jsonschema/*")}

    assert published == set(MADE) - {ASYNCAPI}, OUT_OF_DATE


def test_writing_replaces_what_is_stale(tmp_path: Path) -> None:
    (tmp_path / "jsonschema").mkdir()
    stale = tmp_path / "jsonschema" / "schedule.explode.v1.json"
    stale.write_text("{}")

    write(tmp_path)

    assert not stale.exists()
    assert all(written(tmp_path / path) == made for path, made in MADE.items())


@pytest.mark.parametrize("path", sorted(MADE))
def test_every_reference_leads_somewhere(path: str) -> None:
    assert [each for each in references(MADE[path]) if not resolves(each, MADE[path])] == []


@pytest.mark.parametrize("path", sorted(set(MADE) - {ASYNCAPI}))
def test_every_schema_names_itself_its_dialect_and_its_version(path: str) -> None:
    schema = MADE[path]

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["version"] == 1
    assert path == "jsonschema/{}.{}.json".format(*schema["$id"].split(":")[2:])


def test_every_exchange_is_a_channel_with_all_of_its_queues_and_bindings() -> None:
    amqp = [channel["bindings"]["amqp"] for channel in DOCUMENT["channels"].values()]
    found = {
        (each["exchange"]["name"], key, queue["name"])
        for each in amqp
        for queue in each.get("x-queues", ())
        for key in queue["routingKeys"]
    }
    arguments = {
        queue["name"]: queue["arguments"] for each in amqp for queue in each.get("x-queues", ())
    }

    assert {exchange.name for exchange in SYSTEM.exchanges} < {
        each["exchange"]["name"] for each in amqp
    }
    assert found == {(each.exchange, each.routing_key, each.queue) for each in SYSTEM.bindings}
    assert arguments == {queue.name: queue.arguments() for queue in SYSTEM.queues}


def test_every_request_is_an_operation_with_a_reply_that_may_be_a_refusal() -> None:
    for verb in (*COMMANDS, *QUERIES):
        operation = DOCUMENT["operations"][verb]

        answers = [each["$ref"].rpartition("/")[2] for each in operation["reply"]["messages"]]
        assert operation["action"] == "receive"
        assert "response.error" in answers
        to_many = verb in COMMANDS and issubclass(COMMANDS[verb], BulkCommand)
        assert len(answers) == (3 if to_many else 2)


def test_every_fact_that_may_be_told_is_published() -> None:
    told = set(DOCUMENT["channels"]["events"]["messages"])

    assert told == {f"event.{verb}" for verb in EVENT_DATA}
