"""A replacement of a service, which prints its name and is ready on its port.

With `PYTHON_DRAIN`, an executor needs this number of seconds after SIGTERM, and prints its end.
"""

import os
import signal
import sys
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK if self.path == "/readyz" else HTTPStatus.NOT_FOUND)
        self.end_headers()


def drain(*_: object) -> None:
    time.sleep(float(os.environ["PYTHON_DRAIN"]))
    print("drained", flush=True)  # noqa: T201 (this is its log)
    sys.exit(0)


if __name__ == "__main__":
    if "PYTHON_DRAIN" in os.environ and os.environ["HAREBELL_INSTANCE_ID"].startswith("executor"):
        signal.signal(signal.SIGTERM, drain)
    print(f"I am {os.environ['HAREBELL_INSTANCE_ID']}", flush=True)  # noqa: T201 (this is its log)
    HTTPServer(("127.0.0.1", int(os.environ["HAREBELL_HTTP_PORT"])), Ready).serve_forever()
