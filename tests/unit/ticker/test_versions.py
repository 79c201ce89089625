"""The bounds of the version cache."""

from uuid import UUID

from tests.fakes.tickets import NINE

from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.ticker.model.version import Version
from harebell.ticker.store.versions import VersionCache

LARGE = 60_000  # characters of a payload


def version(number: int, *, when: str = "every", filling: int = 0) -> Version:
    target = {"task": {"name": "acme.report", "args": {"filling": "x" * filling}}}
    definition = parse(Definition, {"when": {when: "1h"}, "target": target})
    return Version.create(UUID(int=1), number, tenant="acme", definition=definition, at=NINE)


def test_cache_bounds_the_characters_of_its_versions() -> None:
    versions = VersionCache()

    versions.add(
        version(number, filling=LARGE) for number in range(2 * VersionCache.MAX_CHARACTERS // LARGE)
    )

    assert len(versions) <= VersionCache.MAX_CHARACTERS // LARGE


def test_version_that_is_added_again_needs_no_more_space() -> None:
    versions = VersionCache()
    others = 10

    versions.add(version(number) for number in range(others))
    versions.add(version(0, filling=LARGE) for _ in range(2 * VersionCache.MAX_CHARACTERS // LARGE))

    assert len(versions) == others


def test_cache_contains_only_recurring_versions() -> None:
    versions = VersionCache()

    versions.add([version(1), version(2, when="after")])

    assert len(versions) == 1
