"""A web service that records each call in a file: a separate process that imports no Harebell.

`python target_process.py FILE` prints its port and serves until it is killed.
Each call appends two lines of JSON to FILE, at its start and at its end.
The query selects the response:

* `sleep=1.5`      wait for 1.5 seconds
* `fail=2`         fail the first two calls of each run
* `broken=NAME`    fail each call until a call of `/fixed/NAME`
* `status=500`     the status of a failure, 503 by default
* `accepted=202`   the status of a success, 200 by default
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


@dataclass(kw_only=True)
class Memory:
    """State that all calls share. The file remains after the end of the process."""

    file: int
    fixed: set[str] = field(default_factory=set)
    _calls_of: Counter[str] = field(default_factory=Counter)
    _numbers: "count[int]" = field(default_factory=count)
    _lock: Lock = field(default_factory=Lock)

    def call(self, run_id: str) -> tuple[str, int]:
        """Return the name of this call and its number among the calls of the run."""
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
        options = {key: values[-1] for key, values in parse_qs(parts.query).items()}
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
            "replay": self.headers.get("Harebell-Replay"),
            "idempotency_key": self.headers.get("Idempotency-Key"),
            "body": body.decode(errors="replace"),
            "started_at": started_at,
            "finished_at": None,
            "ok": None,
        }
        self.memory.write(line)
        time.sleep(float(options.get("sleep", 0)))
        ok = self._succeeds(options, number)
        self.memory.write({**line, "finished_at": time.time(), "ok": ok})
        accepted = int(options.get("accepted", HTTPStatus.OK))
        return self._reply(accepted if ok else int(options.get("status", 503)))

    def do_GET(self) -> None:
        self.do_POST()

    def _succeeds(self, options: dict[str, str], number: int) -> bool:
        broken = "broken" in options and options["broken"] not in self.memory.fixed
        return not broken and number > int(options.get("fail", 0))

    def _reply(self, status: int) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
        except OSError:  # the caller was killed
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 1024
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Ignore the error: a killed caller is not an error of this server."""


def main() -> None:
    file = os.open(Path(sys.argv[1]), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    Handler.memory = Memory(file=file)
    port = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    server = Server(("127.0.0.1", port), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
