"""A web service that writes down every call it gets: a process of its own, with no Harebell in it.

`python target.py FILE` prints its port and serves until it is killed. Every call appends two lines
of JSON to FILE, at its start and at its end. The query says how it is answered:

* `sleep=1.5`      only after so many seconds
* `fail=2`         the first two calls of each run fail
* `broken=NAME`    all fail, until `/fixed/NAME` has been called
* `status=500`     what failures are answered with; else 503
"""

import json
import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIXED = "/fixed/"


@dataclass
class Memory:
    """What all calls share. The file outlives the process, so a test may start it again."""

    file: int
    fixed: set[str] = field(default_factory=set)
    _calls_of: Counter[str] = field(default_factory=Counter)
    _numbers: "count[int]" = field(default_factory=count)
    _lock: Lock = field(default_factory=Lock)

    def call(self, run_id: str) -> tuple[str, int]:
        """The name of this call, and which one of its run it is."""
        with self._lock:
            self._calls_of[run_id] += 1
            return f"{os.getpid()}-{next(self._numbers)}", self._calls_of[run_id]

    def write(self, line: dict[str, Any]) -> None:
        os.write(self.file, json.dumps(line).encode() + b"\n")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    memory: Memory

    def do_POST(self) -> None:
        started_at = time.time()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = urlsplit(self.path)
        if parts.path.startswith(FIXED):
            self.memory.fixed.add(parts.path.removeprefix(FIXED))
            return self._reply(HTTPStatus.OK)
        asked = {key: values[-1] for key, values in parse_qs(parts.query).items()}
        run_id = self.headers.get("Harebell-Run-Id", "")
        name, number = self.memory.call(run_id)
        line = {
            "call": name,
            "path": parts.path,
            "run_id": run_id,
            "schedule_id": self.headers.get("Harebell-Schedule-Id"),
            "scheduled_for": self.headers.get("Harebell-Scheduled-For"),
            "attempt": int(self.headers.get("Harebell-Attempt") or 0),
            "token": int(self.headers.get("Harebell-Fencing-Token") or 0),
            "idempotency_key": self.headers.get("Idempotency-Key"),
            "body": body.decode(errors="replace"),
            "started_at": started_at,
            "finished_at": None,
            "ok": None,
        }
        self.memory.write(line)
        time.sleep(float(asked.get("sleep", 0)))
        ok = self._is_well(asked, number)
        self.memory.write({**line, "finished_at": time.time(), "ok": ok})
        return self._reply(HTTPStatus.OK if ok else int(asked.get("status", 503)))

    def do_GET(self) -> None:
        self.do_POST()

    def _is_well(self, asked: dict[str, str], number: int) -> bool:
        broken = "broken" in asked and asked["broken"] not in self.memory.fixed
        return not broken and number > int(asked.get("fail", 0))

    def _reply(self, status: int) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:  # the caller is gone
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A caller that was killed is no error of ours."""


def main() -> None:
    file = os.open(Path(sys.argv[1]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    Handler.memory = Memory(file)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = Server(("127.0.0.1", port), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
