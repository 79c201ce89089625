"""Each join of the dlq_inspector compares the tenants of its rows.

A run id or the id of a group is derived from names that any tenant can know.
"""

import ast
import importlib
import pkgutil
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any, Final
from uuid import UUID

import pytest
from pydantic import ValidationError
from tests.fakes.publisher import FakePublisher

from harebell import dlq_inspector
from harebell.contract.commands import ReplayJobStart
from harebell.contract.queries import DeadLetterGet, DeadLetterList, GroupList
from harebell.dlq_inspector.alert_monitor import AlertMonitor
from harebell.dlq_inspector.store import dead_letters, groups, queries, replay_jobs
from harebell.runtime.settings import DlqInspectorSettings
from harebell.storage import tables

ID: Final = UUID(int=1)
OWNED: Final = sorted(
    name for name, table in tables.metadata.tables.items() if "tenant" in table.columns
)
# The retention reads and deletes rows of all tenants and shows none of them.
EXEMPT_MODULES: Final = ("retention",)
IS_STATEMENT: Final = re.compile(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b")
REFERENCE: Final = re.compile(
    rf"(?:\b(?:FROM|JOIN|UPDATE|USING)|,)\s+({'|'.join(OWNED)})\b(?!\.)"
    r"(?:\s+AS\s+(\w+)|\s+(?!(?:WHERE|SET|ON|JOIN|LEFT|CROSS|ORDER|GROUP|LIMIT|FOR|USING|AS)\b)(\w+))?"
)


NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ROW: Final = {"schedule_id": ID, "scheduled_for": NOON, "tenant": "acme", "payload": "{}"}


class RecordingConnection:
    """A connection and its pool, which record the text of each statement."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator["RecordingConnection"]:
        yield self

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        yield

    async def fetch(self, text: str, *_: object) -> list[Any]:
        self.texts.append(text)
        is_detail = "run_replay_number" in text
        return [defaultdict(lambda: None, ROW)] if is_detail else []

    async def fetchval(self, text: str, *_: object) -> int:
        self.texts.append(text)
        return 1

    async def execute(self, text: str, *_: object) -> str:
        self.texts.append(text)
        return "INSERT 0 1"


def texts_of(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield each statement that a constant of the module contains, with its name."""
    for name, value in vars(module).items():
        fields = asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
        for field, text in {name: value, **fields}.items():
            if isinstance(text, str) and IS_STATEMENT.match(text):
                yield f"{module.__name__.removeprefix('harebell.')}.{field}", text


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(dlq_inspector.__path__, "harebell.dlq_inspector."):
        if not found.name.endswith(("__main__", *EXEMPT_MODULES)):
            yield importlib.import_module(found.name)


FILTER: Final = {"group": ID, "key": "a", "tag": "b", "error": "c", "replayed": True}
START: Final = ReplayJobStart.model_validate({"select": FILTER, "note": "n"})
LIST: Final = DeadLetterList.model_validate(FILTER)


async def built_statements() -> list[str]:
    """Return the statements of each function that builds one, with every filter."""
    connection = RecordingConnection()
    await queries.dead_letter_page(connection, "acme", LIST)
    with suppress(ValidationError):  # the row of the dead letter is incomplete
        await queries.dead_letter(connection, "acme", DeadLetterGet(id=ID))
    await groups.group_page(connection, "acme", GroupList())
    await dead_letters.count_open(connection)
    await replay_jobs.count_selected(connection, "acme", START)
    await replay_jobs.create_replay_job(connection, START, id_=ID, tenant="acme", actor=None)
    settings = DlqInspectorSettings.load(SETTINGS)
    monitor = AlertMonitor(
        pool=connection, publisher=FakePublisher(), settings=settings, parked=lambda: 0
    )
    await monitor.check()
    return connection.texts


SETTINGS: Final = {
    "HAREBELL_AMQP_URL": "amqp://broker.example",
    "HAREBELL_DATABASE_URL": "postgresql://database.example/harebell",
}
BUILDERS: Final = {
    "_dead_letter_list",
    "_group_list",
    "_insertion_of_items",
    "_open_count",
    "_replay_count",
    "_replays_of",
    "_selected",
    "_spikes",
    "count_selected",
    "dead_letter",
    "filter_conditions",
    "is_hidden",
}
ONE_TABLE: Final = {"replay_job_page", "replay_item_page", "_replay_job_row"}


def tenants_not_compared(text: str) -> list[str]:
    """Return each row source of a statement with several sources whose tenant nothing compares."""
    references = [
        (table, alias or other or table) for table, alias, other in REFERENCE.findall(text)
    ]
    is_join = len(references) > 1 or "JOIN" in text
    return [
        f"{table} as {alias}"
        for table, alias in references
        if is_join and _comparisons(text, alias, table) < _count(references, alias)
    ]


def _count(references: list[tuple[str, str]], alias: str) -> int:
    return sum(each == alias for _, each in references)


def _comparisons(text: str, alias: str, table: str) -> int:
    unqualified = r"|(?<![\w.])tenant" if alias == table else ""
    column = rf"(?:\b{alias}\.tenant{unqualified})"
    comparison = rf"{column}\s*(?:=|<>)|=\s*{column}\b|\({column}, |SELECT {column}, "
    return len(re.findall(comparison, text))


@pytest.mark.requirement("P4")
def test_each_statement_text_compares_the_tenants_of_its_rows() -> None:
    statements = dict(found for module in modules() for found in texts_of(module))

    faults = {
        name: missing
        for name, text in statements.items()
        if (missing := tenants_not_compared(text))
    }

    assert len(statements) > 30
    assert faults == {}


@pytest.mark.requirement("P4")
async def test_each_built_statement_compares_the_tenants_of_its_rows() -> None:
    texts = await built_statements()

    assert sum("dead_letters" in text for text in texts) >= 8
    assert [(text, missing) for text in texts if (missing := tenants_not_compared(text))] == []


def test_each_function_that_builds_a_statement_is_checked() -> None:
    root = Path(next(iter(dlq_inspector.__path__)))
    building = {
        function.name
        for file in root.rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and {"select", "exists", "insert"} & {_called(node) for node in ast.walk(function)}
    }

    assert building == BUILDERS | ONE_TABLE


def _called(node: ast.AST) -> str | None:
    return node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else None


@pytest.mark.parametrize(
    "text",
    [
        "FROM dead_letters JOIN runs ON runs.id = dead_letters.id WHERE dead_letters.tenant = $1",
        "FROM dead_letters AS a JOIN runs AS b ON b.tenant = a.tenant JOIN runs AS c ON a.id = c.i",
        "FROM dead_letters, runs WHERE dead_letters.tenant = $1",
    ],
)
def test_join_without_a_comparison_is_found(text: str) -> None:
    assert len(tenants_not_compared(text)) == 1
