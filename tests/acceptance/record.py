"""The recording target as tests see it: its address, its behaviour, and what it wrote down."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.acceptance import target


@dataclass(frozen=True)
class Call:
    """One request that the target got. `ok` None: it has not been answered yet, or never was."""

    run_id: str
    schedule_id: str
    scheduled_for: datetime
    attempt: int
    token: int
    idempotency_key: str | None
    body: str
    started_at: datetime
    finished_at: datetime | None
    ok: bool | None

    @classmethod
    def read(cls, line: dict[str, Any]) -> "Call":
        finished = line["finished_at"]
        return cls(
            run_id=line["run_id"],
            schedule_id=line["schedule_id"],
            scheduled_for=datetime.fromisoformat(line["scheduled_for"]),
            attempt=line["attempt"],
            token=line["token"],
            idempotency_key=line["idempotency_key"],
            body=line["body"],
            started_at=datetime.fromtimestamp(line["started_at"], UTC),
            finished_at=None if finished is None else datetime.fromtimestamp(finished, UTC),
            ok=line["ok"],
        )

    @property
    def late(self) -> float:
        """Seconds; negative when it came early."""
        return (self.started_at - self.scheduled_for).total_seconds()


@dataclass(frozen=True)
class Target:
    """Tests that share it have a folder of paths each."""

    file: Path
    port: int
    folder: str = ""  # ends with a slash

    @classmethod
    @contextmanager
    def open(cls, file: Path) -> Iterator["Target"]:
        with start(file) as process:
            assert process.stdout is not None
            yield cls(file, int(process.stdout.readline()))

    def url(self, path: str, **behaviour: object) -> str:
        """`behaviour` as `target.py` explains it."""
        if "broken" in behaviour:
            behaviour["broken"] = f"{self.folder}{behaviour['broken']}"
        query = f"?{urlencode(behaviour)}" if behaviour else ""
        return f"http://127.0.0.1:{self.port}/{self.folder}{path}{query}"

    def http(self, path: str, **behaviour: object) -> dict[str, Any]:
        """As a schedule's `target`."""
        return {"http": {"method": "POST", "url": self.url(path, **behaviour), "json": {}}}

    def fix(self, name: str) -> None:
        """What is `broken` by that name answers well from now on."""
        url = f"http://127.0.0.1:{self.port}/fixed/{self.folder}{name}"
        urllib.request.urlopen(url, timeout=10).close()

    def calls(self, path: str) -> list[Call]:
        """Those to that path, in the order they came."""
        place = f"/{self.folder}{path}"
        lines = self.file.read_text().split("\n")[:-1]  # what is behind the last one is unfinished
        mine = (json.loads(line) for line in lines if place in line)
        latest = {line["call"]: line for line in mine if line["path"] == place}
        return [Call.read(line) for line in latest.values()]


@contextmanager
def start(file: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-I", str(target.__file__), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # ours
        try:
            yield process
        finally:
            process.kill()
