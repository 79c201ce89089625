"""Metrics have names that Prometheus recommends, one home each, and a row on the metrics page."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest
from tests.architecture.documents import page
from tests.architecture.metric_names import Metric, declared
from tests.architecture.source_tree import SCHEMAS, SERVICES, Module, listing, source_modules

ROW: Final = re.compile(
    r"^\| `(harebell_\w+)` \| (\w+) \| ([^|]*) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)
SERVICE_NAMES: Final = frozenset({"intake", "ticker", "dispatcher", "executor", "dlq_inspector"})
SHARED_HOMES: Final = frozenset({"runtime", "messaging", "storage", "bootstrap"})
IDS: Final = frozenset(
    {"run", "run_id", "schedule", "schedule_id", "tenant", "key", "request_id", "instance"}
)
# Print one line for each service: its name and the metrics in its registry.
# The processes share the imported libraries, which take most of the time.
LIST_METRICS: Final = """
import importlib, os, sys
import aio_pika, asyncpg, pydantic, sqlalchemy.ext.asyncio, structlog
from prometheus_client import REGISTRY
for service in sys.argv[1:]:
    if not os.fork():
        importlib.import_module(f"harebell.{service}.service")
        print(service, *(family.name for family in REGISTRY.collect()), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.requirement("S114")
@pytest.mark.parametrize("metric", declared(), ids=lambda metric: metric.name)
def test_metric_has_the_prefix_a_base_unit_and_no_id_as_a_label(metric: Metric) -> None:
    assert metric.name.startswith("harebell_")
    assert not re.search("_(ms|millis|minutes|hours|kb|mb|percent)(_|$)", metric.name)
    assert not IDS & set(metric.labels)


@pytest.mark.requirement("S114")
def test_metrics_page_shows_each_metric_as_it_is_declared() -> None:
    rows = ROW.findall(page("metrics.md").read_text())
    written = {(name, type_, labels, help_text) for name, type_, labels, _, help_text in rows}

    assert written == {
        (each.name, each.type, ", ".join(f"`{label}`" for label in each.labels), each.help)
        for each in declared()
    }
    recorded_by = {service for *_, by, _ in rows for service in by.split(", ")}
    assert recorded_by <= SERVICE_NAMES | {"all"}


def package_of(module: str) -> str:
    """Return the second part of the name of a module, such as `ticker`."""
    return module.split(".")[1]


def users_of(home: str, variable: str, modules: tuple[Module, ...]) -> Iterator[str]:
    """Yield the packages of the modules that import the metric from its home."""
    parent, _, name = home.rpartition(".")
    for module in modules:
        imported = {
            (node.module, alias.name)
            for node in module.find(ast.ImportFrom)
            for alias in node.names
        }
        attributes = {each.attr for each in module.find(ast.Attribute)}
        if (home, variable) in imported or ((parent, name) in imported and variable in attributes):
            yield package_of(module.name)


def is_at_home(home: str, users: set[str]) -> bool:
    """Return whether a `metrics.py` declares the metric, and the only user has that module."""
    belongs_to_one = len(users) == 1 and users <= SERVICE_NAMES
    return home.endswith(".metrics") and (not belongs_to_one or users == {package_of(home)})


def test_metric_of_one_service_is_declared_in_the_metrics_module_of_the_service() -> None:
    faults = [
        f"{metric.name} in {metric.home}: used by {', '.join(sorted(users))}"
        for metric in declared()
        for users in [set(users_of(metric.home, metric.variable, source_modules()))]
        if not is_at_home(metric.home, users)
    ]

    assert not faults, listing(faults)


@pytest.mark.parametrize(
    ("code", "packages"),
    [
        ("from harebell.runtime.metrics import READY", ["ticker"]),
        ("from harebell.runtime import metrics\nmetrics.READY.set(1)", ["ticker"]),
        ("from harebell.runtime import metrics\nmetrics.OTHER.set(1)", []),
        ("from harebell.storage import metrics\nmetrics.READY.set(1)", []),
    ],
)
def test_user_of_a_metric_is_found_by_its_import(code: str, packages: list[str]) -> None:
    module = Module(SERVICES / "harebell" / "ticker" / "stager.py", code)

    assert list(users_of("harebell.runtime.metrics", "READY", (module,))) == packages


@pytest.mark.parametrize(
    ("home", "users", "is_home"),
    [
        ("harebell.ticker.metrics", {"ticker"}, True),
        ("harebell.runtime.metrics", {"ticker"}, False),
        ("harebell.runtime.metrics", {"ticker", "executor"}, True),
        ("harebell.storage.metrics", {"storage"}, True),
        ("harebell.ticker.stager", {"ticker"}, False),
    ],
)
def test_metric_with_one_user_is_at_home_in_its_service(
    home: str, users: set[str], *, is_home: bool
) -> None:
    assert is_at_home(home, users) is is_home


@cache
def registries() -> dict[str, set[str]]:
    """Return the metrics of Harebell in the registry of each service."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SERVICES, SCHEMAS)))}
    done = subprocess.run(  # noqa: S603  # the interpreter of this test
        [sys.executable, "-c", LIST_METRICS, *sorted(SERVICE_NAMES)],
        stdout=subprocess.PIPE,
        check=True,
        env=environment,
        text=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {line[0]: {each for each in line if each.startswith("harebell_")} for line in lines}


@pytest.mark.parametrize("service", sorted(SERVICE_NAMES))
def test_registry_of_a_service_has_no_metric_of_another_service(service: str) -> None:
    homes = {metric.family: package_of(metric.home) for metric in declared()}

    found = registries().get(service, set())

    assert found
    assert {homes[name] for name in found} <= SHARED_HOMES | {service}
