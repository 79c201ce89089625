"""The operators that use objects of the chart: their schemas, and the ledger that KEDA reads."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

import asyncpg
from tests.rig.node_packages import FILES, installed_packages

VALIDATE: Final = FILES / "validate_objects.mjs"
NODE_TIMEOUT: Final = 60.0  # seconds
INSERT: Final = """
INSERT INTO runs (scheduled_for, schedule_id, tenant, version, seq, pool, lane, priority, state,
                  attempt, due_at, staged_at)
VALUES (now() - interval '10 s', $1, 'acme', 1, 1, $2, $3, 5, 'staged', 0,
        now() - interval '10 s', now())
"""


def schema_errors(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the errors of objects of KEDA and of the operator of Prometheus."""
    completed = subprocess.run(  # noqa: S603  # a fixed command
        ["node", str(VALIDATE), str(installed_packages(os.environ))],  # noqa: S607  # of the PATH
        input=json.dumps(objects),
        capture_output=True,
        text=True,
        timeout=NODE_TIMEOUT,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    errors: list[str] = json.loads(completed.stdout)
    return errors


async def insert_runs(
    owner: asyncpg.Connection, runs: Mapping[str, int], *, pool: str = "default"
) -> None:
    """Insert due runs that have not started, by lane."""
    lanes = [lane for lane, count in runs.items() for _ in range(count)]
    rows = [(uuid5(NAMESPACE_DNS, f"{pool}.{n}"), pool, lane) for n, lane in enumerate(lanes)]
    await owner.executemany(INSERT, rows)
