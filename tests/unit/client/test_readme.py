"""The examples in the README of the client agree with the contract."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harebell.contract.commands import SchedulePut
from harebell.contract.message import parse
from harebell.contract.responses import ErrorResponse, ScheduleResponse

README = Path(__file__).parents[3] / "schemas" / "README.md"
BLOCKS = re.findall(r"```json\n(.*?)```", README.read_text(), re.DOTALL)
BODIES = re.findall(r"-r default\.schedule\.put .*?-b '(.*?)'", README.read_text(), re.DOTALL)
EXAMPLES = [
    item
    for block in [*BLOCKS, *BODIES]
    for value in [json.loads(block)]
    for item in (value if isinstance(value, list) else [value])
]


@pytest.mark.parametrize("item", [item for item in EXAMPLES if "ok" not in item])
def test_example_of_a_schedule_is_valid(item: dict[str, Any]) -> None:
    parse(SchedulePut, item)


@pytest.mark.parametrize("item", [item for item in EXAMPLES if "ok" in item])
def test_example_of_a_response_is_valid(item: dict[str, Any]) -> None:
    response = parse(ScheduleResponse if item["ok"] else ErrorResponse, item)

    assert response.model_dump(mode="json", exclude_none=True) == item


def test_readme_has_examples() -> None:
    assert len(EXAMPLES) == 6
