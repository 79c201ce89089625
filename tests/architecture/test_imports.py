"""What may be used where: import-linter's contracts are complete, and each rule has one home."""

import tomllib
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.architecture.sources import OURS, ROOT, SCHEMAS, SERVICES

LINTER: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"][
    "importlinter"
]
CONTRACTS: Final = {contract["name"]: contract for contract in LINTER["contracts"]}
NAMES: Final = {module.name for module in OURS}
SHIPPED: Final = [module for module in OURS if not module.name.startswith("harebell.dev")]

# What reads the world, and the few places that may.
READERS: Final = {
    "datetime.now": {"harebell.kernel.clock", "harebell.cli.__main__"},
    "datetime.utcnow": set[str](),
    "datetime.today": set[str](),
    "date.today": set[str](),
    "time.time": set[str](),
    "time.time_ns": set[str](),
    "os.getenv": set[str](),
    "uuid.uuid4": set[str](),
    "random.random": {"harebell.executor.service", "harebell.executor.settling"},
}
FOR_PEOPLE: Final = {"harebell.client.correspondence"}  # a timestamp that decides nothing


def packages() -> set[str]:
    return {
        f"harebell.{path.name}"
        for root in (SERVICES, SCHEMAS)
        for path in (root / "harebell").iterdir()
        if (path / "__init__.py").exists()
    }


def layers() -> Iterator[str]:
    (layered,) = [each for each in LINTER["contracts"] if each["type"] == "layers"]
    for layer in layered["layers"]:
        assert ":" not in layer, "`:` lets siblings import each other"
        yield from layer.split(" | ")


@pytest.mark.requirement("S58")
def test_every_package_is_linted_and_has_its_layer() -> None:
    assert set(LINTER["root_packages"]) == packages()
    assert sorted(layers()) == sorted(packages())


def test_every_pure_module_exists() -> None:
    pure = set(CONTRACTS["rules do no I/O"]["source_modules"]) - {"harebell.*.core"}

    assert pure <= NAMES


@pytest.mark.requirement("S125")
def test_every_core_is_pure() -> None:
    assert "harebell.*.core" in CONTRACTS["rules do no I/O"]["source_modules"]


def test_croniter_has_one_user() -> None:
    users = [module.name for module in OURS if "croniter" in module.imports()]

    assert users == ["harebell.kernel.cron.calendar"]


def test_only_a_start_reads_the_environment() -> None:
    readers = {module.name for module in SHIPPED if "os.environ" in module.calls()}

    assert [name for name in readers if not name.endswith(".__main__")] == []


def test_only_the_clock_reads_the_clock_and_ids_are_never_random() -> None:
    for reader, homes in READERS.items():
        users = {module.name for module in SHIPPED if reader in module.calls()}

        assert users - FOR_PEOPLE <= homes, reader


def test_only_what_consumes_acknowledges() -> None:
    users = {
        module.name
        for module in OURS
        if any(call.rpartition(".")[2] in {"ack", "nack", "reject"} for call in module.calls())
    }

    assert users <= {"harebell.kernel.amqp.consume"}
