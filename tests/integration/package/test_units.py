"""The units of the Debian package: valid, hardened, and with the settings of the services."""

import importlib.util
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from tests.architecture.source_tree import ROOT

from harebell.runtime.settings import (
    OTHER_PROGRAMS_SETTINGS,
    PREFIX,
    ExecutorSettings,
    ServiceSettings,
)

PACKAGE: Final = ROOT / "compose" / "debian"
UNITS: Final = PACKAGE / "units"
SYSTEM: Final = Path("/lib/systemd/system")
MAX_EXPOSURE: Final = 2.0  # of the scores of `systemd-analyze security`
SERVICES: Final = ("intake", "ticker", "dispatcher", "executor", "dlq-inspector")
INSTANCES: Final = (
    *(f"harebell-{each}@1.service" for each in SERVICES),
    "harebell-migrate.service",
    "harebell-upgrade.service",
)


@dataclass(frozen=True)
class Options:
    """The options of a unit, in which an option may occur several times."""

    lists: dict[str, list[str]]

    @classmethod
    def of(cls, unit: str) -> "Options":
        lists: dict[str, list[str]] = {}
        for line in (UNITS / unit).read_text().splitlines():
            name, separator, value = line.partition("=")
            if separator and not line.startswith("#"):
                lists.setdefault(name, []).append(value)
        return cls(lists)

    def environment(self) -> dict[str, str]:
        words = " ".join(self.lists.get("Environment", [])).split()
        return {name: value for name, _, value in (word.partition("=") for word in words)}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the root of a file system with the units of Debian and of the package."""
    if not SYSTEM.is_dir() or shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed.")
    root = tmp_path_factory.mktemp("root")
    folder = root / "lib/systemd/system"
    shutil.copytree(SYSTEM, folder, symlinks=True)
    shutil.copytree(UNITS, folder, dirs_exist_ok=True)
    python = root / "usr/lib/harebell/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    return root


def analyze(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # noqa: S603  # the arguments of a test
        ["systemd-analyze", *arguments],  # noqa: S607  # of the PATH
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        env=os.environ | {"SYSTEMD_COLORS": "0", "SYSTEMD_PAGER": ""},
    )


@pytest.mark.parametrize("unit", [*INSTANCES, "harebell.target"])
def test_unit_has_no_error_and_no_warning(root: Path, unit: str) -> None:
    report = analyze(f"--root={root}", "verify", "--man=no", unit)

    about = [line for line in report.stdout.splitlines() if "harebell" in line]
    assert about == []


@pytest.mark.parametrize("unit", INSTANCES)
def test_exposure_of_each_unit_is_small(root: Path, unit: str) -> None:
    report = analyze("security", "--offline=true", f"--root={root}", unit)

    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report.stdout)
    assert exposure, report.stdout
    assert float(exposure[1]) <= MAX_EXPOSURE


@pytest.mark.parametrize("service", SERVICES)
def test_unit_starts_the_module_of_its_service_with_valid_settings(service: str) -> None:
    options = Options.of(f"harebell-{service}@.service")
    classes: list[type[ServiceSettings]] = [ServiceSettings]
    classes += ServiceSettings._classes  # noqa: SLF001  # the settings of all services
    known = {PREFIX + name.upper() for each in classes for name in each.model_fields}

    (command,) = options.lists["ExecStart"]
    module = command.split(" -m ")[1]
    assert module == f"harebell.{service.replace('-', '_')}"
    assert importlib.util.find_spec(f"{module}.__main__")
    assert {name.removesuffix("_FILE") for name in options.environment()} <= known


def test_migration_runs_its_module_with_its_settings() -> None:
    options, during_upgrade = (
        Options.of(f"harebell-{each}.service") for each in ("migrate", "upgrade")
    )

    assert during_upgrade.environment() == options.environment()
    for name in ("ExecStart", "LoadCredential", "SetCredential", "ConditionPathExists"):
        assert during_upgrade.lists[name] == options.lists[name]
    assert importlib.util.find_spec("harebell.storage.__main__")
    own = {PREFIX + name for name in OTHER_PROGRAMS_SETTINGS}
    assert set(options.environment()) <= own | {"HAREBELL_DATABASE_URL_FILE"}


@pytest.mark.parametrize("service", SERVICES)
def test_credentials_have_the_names_of_the_keys_of_the_chart(service: str) -> None:
    options = Options.of(f"harebell-{service}@.service")

    assert options.lists["LoadCredential"] == [
        f"{kind}-url:/etc/harebell/credentials/{service}-{kind}-url"
        for kind in ("amqp", "database")
    ]
    assert [path.rsplit("/", 1)[1] for path in options.lists["AssertPathExists"]] == [
        f"{service}-amqp-url",
        f"{service}-database-url",
    ]


@pytest.mark.parametrize("service", SERVICES)
def test_no_service_is_killed_during_its_shutdown(service: str) -> None:
    timeout: timedelta = ExecutorSettings.model_fields["shutdown_timeout"].default

    (stop,) = Options.of(f"harebell-{service}@.service").lists["TimeoutStopSec"]

    assert int(stop.removesuffix("s")) >= timeout.total_seconds() + 5


def test_shipped_settings_are_valid() -> None:
    for path in (PACKAGE / "etc").glob("*.env"):
        lines = [line.removeprefix("#") for line in path.read_text().splitlines()]
        pairs = dict(line.split("=", 1) for line in lines if re.match(r"HAREBELL_\w+=", line))
        ServiceSettings.load(
            {
                "HAREBELL_AMQP_URL": "amqp://broker.example",
                "HAREBELL_DATABASE_URL": "postgresql://database.example/harebell",
                **pairs,
            }
        )
        assert pairs


@pytest.mark.parametrize("page", ["systemd.md", "kubernetes.md"])
def test_pages_name_each_credential(page: str) -> None:
    text = (ROOT / "docs/operations" / page).read_text()

    for service in SERVICES:
        assert f"`{service}-amqp-url`" in text
        assert f"`{service}-database-url`" in text
