"""The target of the demo: a web service without Harebell, which records every call.

`python target.py FILE FIXED` prints its port and serves until the end of its standard input. Each
call appends one line of JSON to FILE. The path selects the behaviour:

* `/ok`        succeeds
* `/flaky`     fails the first two attempts of each run
* `/broken`    fails until the file FIXED appears
"""

import json
import os
import sys
from datetime import UTC, datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

FAILURES = 2  # attempts of a run that /flaky fails


class Target(ThreadingHTTPServer):
    """The server, with the file of calls and the path of the file FIXED."""

    daemon_threads = True

    def __init__(self, calls: Path, fixed: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.calls = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self.fixed = fixed

    def status(self, path: str, attempt: int) -> HTTPStatus:
        match path:
            case "/ok":
                is_success = True
            case "/flaky":
                is_success = attempt > FAILURES
            case "/broken":
                is_success = self.fixed.exists()
            case _:
                return HTTPStatus.NOT_FOUND
        return HTTPStatus.OK if is_success else HTTPStatus.SERVICE_UNAVAILABLE


class Handler(BaseHTTPRequestHandler):
    """The handler of one call."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Target

    def do_POST(self) -> None:
        started_at = datetime.now(UTC)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        attempt = int(self.headers.get("Harebell-Attempt") or 0)
        status = self.server.status(self.path, attempt)
        line = {
            "run_id": self.headers.get("Harebell-Run-Id"),
            "schedule_id": self.headers.get("Harebell-Schedule-Id"),
            "scheduled_for": self.headers.get("Harebell-Scheduled-For"),
            "started_at": started_at.isoformat(),
            "attempt": attempt,
            "token": int(self.headers.get("Harebell-Fencing-Token") or 0),
            "status": int(status),
        }
        # One write per line, so that concurrent calls do not mix and no line is incomplete.
        os.write(self.server.calls, json.dumps(line).encode() + b"\n")
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # http.server's name
        """Write no log, because the file records every call."""


def main() -> None:
    calls, fixed = map(Path, sys.argv[1:])
    target = Target(calls, fixed)
    Thread(target=target.serve_forever, daemon=True).start()
    sys.stdout.write(f"{target.server_port}\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
