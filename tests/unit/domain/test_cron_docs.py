"""The tables of docs/architecture/cron.md are true."""

import re
from pathlib import Path

import pytest

from harebell.contract.errors import InvalidCron
from harebell.domain.cron import Cron

PAGE = Path(__file__).parents[3] / "docs" / "architecture" / "cron.md"


def first_column(heading: str) -> list[str]:
    section = PAGE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)


@pytest.mark.requirement("S04")
@pytest.mark.parametrize("expression", first_column("What we accept"))
def test_parser_accepts_each_accepted_expression_of_the_page(expression: str) -> None:
    assert Cron.parse(expression).expression == expression


@pytest.mark.requirement("S12")
@pytest.mark.parametrize("expression", first_column("What we refuse"))
def test_parser_rejects_each_rejected_expression_of_the_page(expression: str) -> None:
    with pytest.raises(InvalidCron):
        Cron.parse(expression)


def test_page_contains_both_tables() -> None:
    assert len(first_column("What we accept")) > 15
    assert len(first_column("What we refuse")) > 15
