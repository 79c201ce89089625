"""The list of mutants is complete, and each mutant fits its file and names existing tests."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from tests.mutants.mutant import Mutant, OutdatedMutant, load_mutants, select
from tests.mutants.runner import fault_of

ROOT: Final = Path(__file__).parents[2]
MUTANTS: Final = load_mutants()
NAMES: Final = [mutant.name for mutant in MUTANTS]

MIN_MUTANTS: Final = 120
TOPICS: Final = {
    "alerts",
    "canary",
    "catch-up",
    "dedupe",
    "dst",
    "expiry",
    "fairness",
    "fencing",
    "housekeeping",
    "jitter",
    "leases",
    "order",
    "overlap",
    "publish before commit",
    "ssrf",
}


def test_list_has_mutants_of_each_rule() -> None:
    repeated = [name for name, count in Counter(NAMES).items() if count > 1]

    assert len(MUTANTS) >= MIN_MUTANTS
    assert {mutant.topic for mutant in MUTANTS} >= TOPICS
    assert not repeated


def test_each_mutant_changes_one_existing_line_and_names_existing_tests() -> None:
    outdated = {each.name: fault_of(each, ROOT) for each in MUTANTS}

    assert {name: fault for name, fault in outdated.items() if fault} == {}
    assert [each.name for each in MUTANTS if each.find == each.replace or not each.tests] == []


MUTANT: Final = Mutant(
    name="n", topic="t", file="services/a/b.py", find="1", replace="2", tests=("test_b.py",)
)


def mutant(**changes: Any) -> Mutant:
    return replace(MUTANT, **changes)


@pytest.mark.parametrize(
    ("text", "changes", "expected"),
    [
        ("a = 1\nb = 3\n", {}, "a = 2\nb = 3\n"),
        ("a = 1\nb:\nc = 1\nd = 1\n", {"after": "b:"}, "a = 1\nb:\nc = 2\nd = 1\n"),
        ("a = 1\n", {"replace": ""}, "a = \n"),
    ],
)
def test_mutant_changes_the_only_line_or_the_first_line_below_another(
    text: str, changes: dict[str, str], expected: str
) -> None:
    assert mutant(**changes).apply_to(text) == expected


@pytest.mark.parametrize(
    ("text", "changes"),
    [
        ("a = 3\n", {}),
        ("a = 1\nb = 1\n", {}),
        ("a = 1 + 1\n", {}),
        ("a = 1\n", {"after": "b:"}),
        ("b:\na = 1\nb:\n", {"after": "b:"}),
        ("a = 1\nb:\n", {"after": "b:"}),
    ],
)
def test_mutant_is_outdated_when_its_line_does_not_occur_once(
    text: str, changes: dict[str, str]
) -> None:
    with pytest.raises(OutdatedMutant):
        mutant(**changes).apply_to(text)


def test_module_of_a_mutant_is_found_in_the_folders_of_the_packages() -> None:
    assert mutant().module == "a.b"
    assert mutant(file="compose/prometheus/rules.yml").module is None


def test_selection_contains_the_mutants_of_its_topics_and_rejects_an_unknown_topic() -> None:
    mutants = [mutant(topic=topic, name=topic) for topic in ("dst", "ssrf", "order")]

    assert select(mutants, []) == mutants
    assert [each.topic for each in select(mutants, ["ssrf", "dst"])] == ["dst", "ssrf"]
    with pytest.raises(ValueError, match="must be one of dst, order, ssrf, not typo"):
        select(mutants, ["typo"])
