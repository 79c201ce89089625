"""A stand-in for Grafana, which has no Debian package.

It reads every file that Grafana reads at its start and stops at the first fault. Then it answers
the health check, and `/files` with what it has read.
"""

import json
import os
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import yaml

PROVISIONING = Path("/etc/grafana/provisioning")
DATA = Path("/var/lib/grafana")


def expanded(text: str) -> str:
    """Replace `${NAME}` by the variable, which must exist."""
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ[match[1]], text)


def provisioned(folder: str, key: str) -> Iterator[dict[str, Any]]:
    """Yield each entry of the provisioned files of a folder."""
    for path in sorted((PROVISIONING / folder).glob("*.y*ml")):
        document = yaml.safe_load(expanded(path.read_text()))
        assert document["apiVersion"] == 1, path
        yield from document[key]


def read() -> dict[str, Any]:
    """Return the data sources and the dashboards, or raise an error at the first fault."""
    password = Path(os.environ["GF_SECURITY_ADMIN_PASSWORD__FILE"]).read_text().strip()
    assert len(password) >= 32
    (DATA / "grafana.db").write_text("writable")
    sources = {each["uid"]: each["url"] for each in provisioned("datasources", "datasources")}
    dashboards = {}
    for provider in provisioned("dashboards", "providers"):
        paths = sorted(Path(provider["options"]["path"]).glob("*.json"))
        assert paths, provider
        for path in paths:
            dashboard = json.loads(path.read_text())
            dashboards[dashboard["uid"]] = dashboard["title"]
    assert sources
    assert all("$" not in url for url in sources.values())
    return {"datasources": sources, "dashboards": dashboards}


class Handler(BaseHTTPRequestHandler):
    """The answers to a health check and to the test."""

    def do_GET(self) -> None:
        body = {"/api/health": {"database": "ok"}, "/files": FILES}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *_: object) -> None:
        """Write no line for a request."""


FILES = read()
HTTPServer(("", 3000), Handler).serve_forever()
