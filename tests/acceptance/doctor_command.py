"""The command `harebell doctor` in the tests, and the rows that it prints."""

import json
from typing import TypeAlias

from tests.rig.command_line import harebell

Found: TypeAlias = dict[str, list[dict[str, str]]]  # the rows of each check


async def run(*arguments: str, **environment: str) -> tuple[int | None, Found]:
    """Return the exit code and the rows of each check."""
    done = await harebell("doctor", "--json", *arguments, **environment)
    found: Found = {}
    for row in json.loads(done.output):
        found.setdefault(row["check"], []).append(row)
    return done.code, found


def results(found: Found, check: str) -> set[str]:
    return {row["result"] for row in found[check]}
