"""`harebell dlq export`, `import` and `watch`."""

import json
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker, Request
from tests.unit.cli.rows import ID, OTHER_ID, dead_letter_row

from harebell.cli.dlq.export_import import MAX_BATCH_SIZE, batches

PAYLOAD = {"target": {"http": {"url": "https://acme.example/", "json": {"n": None}}}}


def respond(request: Request) -> dict[str, Any]:
    match request.verb:
        case "dlq.list":
            return {"ok": True, "items": [dead_letter_row(), dead_letter_row(id=OTHER_ID)]}
        case "dlq.get":
            return {"ok": True, **dead_letter_row(id=request.body["id"], payload=PAYLOAD)}
        case _:
            return {"ok": True, "results": dict.fromkeys([ID, OTHER_ID], "imported")}


def test_dlq_import_accepts_the_lines_of_dlq_export(cli: CommandLine, broker: FakeBroker) -> None:
    broker.respond = respond

    exported = cli("dlq", "export", "--tag", "reports")
    imported = cli("dlq", "import", "-", stdin=exported.stdout)

    lines = [json.loads(line) for line in exported.stdout.splitlines()]
    assert exported.exit_code == 0
    assert [(line["id"], line["payload"]) for line in lines] == [(ID, PAYLOAD), (OTHER_ID, PAYLOAD)]
    assert imported.exit_code == 0
    assert imported.stderr == (
        "harebell: 2 dead letters are imported or already present, 0 are not imported.\n"
    )
    sent = {"kind": "run", "payload": PAYLOAD}
    assert broker.requests[-1].body == {"dead_letters": [sent, sent]}


@pytest.mark.parametrize("line", ["[]", "no json", '{"kind": "rung", "payload": {}}'])
def test_dlq_import_sends_nothing_when_a_line_is_not_a_dead_letter(
    cli: CommandLine, broker: FakeBroker, line: str
) -> None:
    assert cli("dlq", "import", "-", stdin=line).exit_code in {1, 2}
    assert broker.requests == []


def test_batch_contains_the_dead_letters_that_fit_in_one_command() -> None:
    small, large = {"payload": "x" * 1_000}, {"payload": "x" * MAX_BATCH_SIZE}

    sizes = [len(batch) for batch in batches([small, small, large, small])]

    assert sizes == [2, 1, 1]


@pytest.mark.requirement("ASK-21")
def test_dlq_watch_prints_each_new_dead_letter_once(cli: CommandLine, broker: FakeBroker) -> None:
    old, new = dead_letter_row(), dead_letter_row(id=OTHER_ID)
    pages = iter([[old], [new, old], [new, old]])
    broker.respond = lambda _: {"ok": True, "items": next(pages)}

    result = cli("dlq", "watch", "--every", "0.1", "--max-polls", "3", "-o", "json")

    assert [row["id"] for row in json.loads(result.stdout)] == [OTHER_ID]
