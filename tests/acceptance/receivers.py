"""Receivers of signed calls: the examples of the documents, with the real packages."""

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from standardwebhooks.webhooks import WebhookVerificationError
from tests.rig.node_packages import installed_packages

PAGE: Final = Path(__file__).parents[2] / "docs" / "operations" / "webhooks.md"
KEY: Final = "WEBHOOK_KEY"  # the variable of the examples with the key of the receiver
NODE_TIMEOUT: Final = 60.0  # seconds
RUNNER: Final = """
const { accept } = require(process.argv[2]);
const calls = JSON.parse(require("fs").readFileSync(0));
const results = calls.map(({ headers, body }) => {
  try {
    accept(headers, Buffer.from(body, "base64"));
    return true;
  } catch (error) {
    return false;
  }
});
console.log(JSON.stringify(results));
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedCall:
    """One received HTTP request or AMQP message. The names of the headers are in lower case."""

    headers: Mapping[str, str]
    body: bytes

    def altered(self, body: bytes | None = None, **headers: str) -> "ReceivedCall":
        """Return the call with other headers, such as `webhook_id`, or with another body."""
        changed = {name.replace("_", "-"): value for name, value in headers.items()}
        kept = self.body if body is None else body
        return ReceivedCall(headers={**self.headers, **changed}, body=kept)


# A receiver returns, for each call, whether it accepts the call with its key.
Receiver = Callable[[str, Sequence[ReceivedCall]], list[bool]]


def python_library(key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    """Verify with the package `standardwebhooks` of PyPI."""
    return _python(0, key, calls)


def python_ed25519(key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    """Verify with the package `cryptography` of PyPI."""
    return _python(1, key, calls)


def node_library(key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    """Verify with the package `standardwebhooks` of npm."""
    return _node(0, key, calls)


def node_ed25519(key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    """Verify with the module `crypto` of Node."""
    return _node(1, key, calls)


def _examples(language: str) -> list[str]:
    blocks = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 2, "the page has one example for each kind of key"
    return blocks


def _python(number: int, key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    example: dict[str, Any] = {}
    exec(_examples("python")[number], example)  # noqa: S102  # the code of our documents
    results = []
    with patch.dict(os.environ, {KEY: key}):
        for call in calls:
            try:
                example["accept"](dict(call.headers), call.body)
            except (WebhookVerificationError, ValueError, KeyError):
                results.append(False)
            else:
                results.append(True)
    return results


def _node(number: int, key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    packages = installed_packages(os.environ)
    stdin = json.dumps(
        [
            {"headers": dict(call.headers), "body": base64.b64encode(call.body).decode()}
            for call in calls
        ]
    )
    source = _examples("javascript")[number]
    example = packages / f"example-{number}-{os.getpid()}.js"
    example.write_text(source, encoding="utf-8")
    try:
        command = ["node", "-e", RUNNER, "runner", str(example)]
        completed = subprocess.run(  # noqa: S603  # a fixed command
            command,
            input=stdin,
            capture_output=True,
            text=True,
            env={**os.environ, KEY: key},
            cwd=packages,
            check=True,
            timeout=NODE_TIMEOUT,
        )
    finally:
        example.unlink()
    results: list[bool] = json.loads(completed.stdout)
    return results
