"""A replacement of a service, which prints its name and is ready on its port."""

import os
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer


class Ready(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(HTTPStatus.OK if self.path == "/readyz" else HTTPStatus.NOT_FOUND)
        self.end_headers()


if __name__ == "__main__":
    print(f"I am {os.environ['HAREBELL_INSTANCE_ID']}", flush=True)  # noqa: T201 (this is its log)
    HTTPServer(("127.0.0.1", int(os.environ["HAREBELL_HTTP_PORT"])), Ready).serve_forever()
