"""A Prometheus of the test, which scrapes the services of a stack."""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson

from harebell.dev.ports import choose_ports

SCRAPE_INTERVAL: Final = "1s"
STOP_TIMEOUT: Final = 20  # seconds
QUERY_TIMEOUT: Final = 10  # seconds


@dataclass(frozen=True)
class Prometheus:
    url: str

    @classmethod
    @contextmanager
    def open(cls, root: Path, targets: Mapping[str, Sequence[int]]) -> Iterator["Prometheus"]:
        """Start a server that scrapes the local ports of each job."""
        port = choose_ports(["prometheus"], seed=str(root), remembered={})["prometheus"]
        root.mkdir()
        config = {
            "global": {"scrape_interval": SCRAPE_INTERVAL},
            "scrape_configs": [
                {
                    "job_name": job,
                    "static_configs": [{"targets": [f"127.0.0.1:{each}" for each in ports]}],
                }
                for job, ports in targets.items()
            ],
        }
        (root / "prometheus.yml").write_bytes(orjson.dumps(config))  # JSON is YAML
        with (root / "log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603  # the arguments are paths of the test
                [
                    "/usr/bin/prometheus",
                    f"--config.file={root / 'prometheus.yml'}",
                    f"--storage.tsdb.path={root / 'data'}",
                    f"--web.listen-address=127.0.0.1:{port}",
                ],
                stdout=log,
                stderr=log,
            )
        try:
            yield cls(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT)

    def query(self, expression: str) -> list[Any]:
        """Return the samples of an instant query, without samples that are not a number."""
        address = f"{self.url}/api/v1/query?{urlencode({'query': expression})}"
        with urlopen(address, timeout=QUERY_TIMEOUT) as response:  # noqa: S310  # loopback
            result = json.load(response)["data"]["result"]
        return [sample for sample in result if sample["value"][1] != "NaN"]
