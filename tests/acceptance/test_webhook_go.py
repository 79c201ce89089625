"""The Go example of the page about signed calls verifies what the signer of the executor signs."""

import base64
import json
import re
import secrets
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import Final

import pytest
from tests.acceptance.receivers import PAGE, ReceivedCall

from harebell.domain.webhook_signature import (
    MessageSigner,
    PrivateKey,
    hmac_text,
    parse_signing_key,
    private_text,
)

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("go") is None, reason="Go is not installed."),
]

BUILD_TIMEOUT: Final = 300.0  # seconds; the first build compiles the standard library
TOO_OLD: Final = 600  # seconds
BODY: Final = '{"order": 7, "name": "Zoë"}'.encode()
MODULE: Final = "module example\n\ngo 1.18\n"
RUNNER: Final = """\
package main

import (
	"encoding/json"
	"net/http"
	"os"

	"example/webhook"
)

func main() {
	var calls []struct {
		Headers map[string]string
		Body    []byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&calls); err != nil {
		panic(err)
	}
	results := []bool{}
	for _, call := range calls {
		header := http.Header{}
		for name, value := range call.Headers {
			header.Set(name, value)
		}
		results = append(results, webhook.Accept(header, call.Body, os.Args[1]) == nil)
	}
	json.NewEncoder(os.Stdout).Encode(results)
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the built program, which verifies calls with the example of the page."""
    [example] = re.findall(r"```go\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    root = tmp_path_factory.mktemp("go")
    (root / "webhook").mkdir()
    (root / "webhook" / "webhook.go").write_text(example, encoding="utf-8")
    (root / "main.go").write_text(RUNNER, encoding="utf-8")
    (root / "go.mod").write_text(MODULE, encoding="utf-8")
    for command in (["go", "vet", "./..."], ["go", "build", "-o", "verify", "."]):
        subprocess.run(command, cwd=root, check=True, timeout=BUILD_TIMEOUT)  # noqa: S603  # fixed commands
    return root / "verify"


def accepted(program: Path, key: str, calls: Sequence[ReceivedCall]) -> list[bool]:
    stdin = json.dumps(
        [
            {"headers": dict(each.headers), "body": base64.b64encode(each.body).decode()}
            for each in calls
        ]
    )
    done = subprocess.run(  # noqa: S603  # the program of the fixture
        [program, key], input=stdin, capture_output=True, text=True, check=True, timeout=60
    )
    results: list[bool] = json.loads(done.stdout)
    return results


@pytest.mark.requirement("P8")
@pytest.mark.parametrize("make_text", [hmac_text, private_text], ids=["v1", "v1a"])
def test_go_example_accepts_a_genuine_call_and_no_other(
    program: Path, make_text: Callable[[bytes], str]
) -> None:
    texts = [make_text(secrets.token_bytes(32)) for _ in range(3)]
    keys = [parse_signing_key(each) for each in texts]
    public = [
        each.public_key().text() if isinstance(each, PrivateKey) else text
        for each, text in zip(keys, texts, strict=True)
    ]
    now = int(time())
    headers = MessageSigner(keys[:2], "run-1", now).headers(BODY)
    genuine = ReceivedCall(headers=headers, body=BODY)
    old = MessageSigner(keys[:2], "run-1", now - TOO_OLD).headers(BODY)
    others = [
        ReceivedCall(headers={}, body=BODY),
        ReceivedCall(headers=old, body=BODY),
        genuine.altered(body=BODY.replace(b"7", b"8")),
        genuine.altered(webhook_id="run-2"),
        genuine.altered(webhook_timestamp=str(now + 1)),
        genuine.altered(webhook_signature="v1,AAAA v1a,AAAA"),
    ]

    results = [accepted(program, key, [genuine, *others]) for key in public]

    assert results == [[True] + [False] * 6, [True] + [False] * 6, [False] * 7]
