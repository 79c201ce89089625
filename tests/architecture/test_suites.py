"""Tests depend on no registry of packages, and on no date that soon is in the past."""

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Final

import pytest
from tests.architecture.source_tree import ROOT, listing
from tests.rig.celery_environment import installed_python
from tests.rig.file_order import FOLDERS
from tests.rig.node_packages import installed_packages
from tests.rig.registries import OFFLINE, RegistryNeeded
from tests.suite.suites import SUITES, Part

FORESEEABLE: Final = timedelta(days=5 * 365)
# 2049-12-24, and datetime(2049, 12, 24, ...) or date(2049, 12, 24).
DATE: Final = re.compile(
    r"(?:\b|\()(?P<year>20\d\d)(?:-|, )(?P<month>\d{1,2})(?:-|, )(?P<day>\d{1,2})(?!\d)"
)


@pytest.mark.parametrize("part", [*SUITES["unit"], *SUITES["test"]], ids=lambda each: each.name)
def test_package_managers_of_make_test_contact_no_registry(part: Part) -> None:
    assert part.environment.items() >= OFFLINE.items()


@pytest.mark.parametrize("install", [installed_packages, installed_python])
def test_test_that_needs_a_registry_fails_in_make_test_although_the_cache_has_its_packages(
    install: object,
) -> None:
    assert callable(install)
    with pytest.raises(RegistryNeeded):
        install(OFFLINE)


def test_fixed_date_of_a_test_with_servers_is_past_or_five_years_ahead() -> None:
    """The servers use the present time, so a near date changes its meaning when it is past."""
    today = datetime.now(UTC).date()
    faults = [
        f"{path.relative_to(ROOT)}: {found}"
        for folder in (*FOLDERS, "tests/rig/")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for found in dates_in(path.read_text(encoding="utf-8"))
        if today <= found < today + FORESEEABLE
    ]

    assert not faults, listing(faults)


def test_dates_of_both_forms_are_found() -> None:
    text = "at = '2031-02-28T09:00:00Z'; datetime(2032, 2, 29, tzinfo=UTC); '2030-13-01'"

    assert list(dates_in(text)) == [date(2031, 2, 28), date(2032, 2, 29)]


def dates_in(text: str) -> Iterator[date]:
    for match in DATE.finditer(text):
        year, month, day = (int(match[name]) for name in ("year", "month", "day"))
        try:
            yield date(year, month, day)
        except ValueError:  # an invalid date is an input of a test
            continue
