"""The client side of the recording target: its address, its behaviour and its recorded calls."""

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

from tests.acceptance import target_process


@dataclass(frozen=True, kw_only=True)
class Call:
    """One request to the target. `ok` is None for a request without a response."""

    run_id: str
    schedule_id: str
    scheduled_for: datetime
    attempt: int
    token: int
    replay: str | None  # the header, which only the calls of a replay have
    idempotency_key: str | None
    body: str
    started_at: datetime
    finished_at: datetime | None
    ok: bool | None

    @classmethod
    def parse(cls, line: dict[str, Any]) -> "Call":
        finished = line["finished_at"]
        return cls(
            run_id=line["run_id"],
            schedule_id=line["schedule_id"],
            scheduled_for=datetime.fromisoformat(line["scheduled_for"]),
            attempt=line["attempt"],
            token=line["token"],
            replay=line["replay"],
            idempotency_key=line["idempotency_key"],
            body=line["body"],
            started_at=datetime.fromtimestamp(line["started_at"], UTC),
            finished_at=None if finished is None else datetime.fromtimestamp(finished, UTC),
            ok=line["ok"],
        )

    @property
    def late(self) -> float:
        """Return the lateness in seconds, which is negative for an early call."""
        return (self.started_at - self.scheduled_for).total_seconds()


@dataclass(frozen=True)
class Target:
    """A running target. Each test that shares the target has a separate folder of paths."""

    file: Path
    port: int
    folder: str = ""  # ends with a slash

    @classmethod
    @contextmanager
    def open(cls, file: Path) -> Iterator["Target"]:
        with start_target(file) as process:
            assert process.stdout is not None
            yield cls(file, int(process.stdout.readline()))

    def url(self, path: str, **behaviour: object) -> str:
        """Return the URL of a path. `target_process.py` documents `behaviour`."""
        if "broken" in behaviour:
            behaviour["broken"] = f"{self.folder}{behaviour['broken']}"
        query = f"?{urlencode(behaviour)}" if behaviour else ""
        return f"http://127.0.0.1:{self.port}/{self.folder}{path}{query}"

    def http(self, path: str, **behaviour: object) -> dict[str, Any]:
        """Return the field `target` of a schedule that calls this path."""
        return {"http": {"method": "POST", "url": self.url(path, **behaviour), "json": {}}}

    def fix(self, name: str) -> None:
        """Let the calls with `broken=name` succeed from now on."""
        url = f"http://127.0.0.1:{self.port}/fixed/{self.folder}{name}"
        urllib.request.urlopen(url, timeout=10).close()

    def calls(self, path: str) -> list[Call]:
        """Return the calls of that path, in the order of their arrival."""
        full_path = f"/{self.folder}{path}"
        lines = self.file.read_text().split("\n")[:-1]  # the target may still write the last line
        parsed = (json.loads(line) for line in lines if full_path in line)
        latest = {line["call"]: line for line in parsed if line["path"] == full_path}
        return [Call.parse(line) for line in latest.values()]


@contextmanager
def start_target(file: Path) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-I", str(target_process.__file__), str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  # ours
        try:
            yield process
        finally:
            process.kill()
