"""`harebell webhook`: new keys in private files, and the verdict about captured calls."""

import json
import stat
from pathlib import Path

import pytest
from tests.unit.cli.conftest import NOW, CommandLine

from harebell.domain.webhook_signature import MessageSigner, parse_signing_key

BODY = b'{"a":1}'
SECOND = int(NOW.timestamp())


@pytest.fixture
def key(cli: CommandLine, tmp_path: Path) -> tuple[Path, str]:
    """Return the file of a new key, and its public key."""
    file = tmp_path / "key"
    made = json.loads(cli("webhook", "keygen", "--file", str(file), "-o", "json").stdout)
    return file, str(made["public_key"])


def captured(folder: Path, key: Path, *, second: int = SECOND) -> tuple[str, ...]:
    """Write a call and return the options with its files."""
    signer = MessageSigner([parse_signing_key(key.read_text())], "run@1", second)
    headers = {"Host": "a.example", **signer.headers(BODY)}
    lines = ["POST /hook HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    (folder / "headers").write_text("\r\n".join(lines))
    (folder / "headers.json").write_text(json.dumps(headers))
    (folder / "body").write_bytes(BODY)
    return ("--headers", str(folder / "headers"), "--body", str(folder / "body"))


def test_new_key_is_in_a_private_file_and_not_in_the_output(
    cli: CommandLine, tmp_path: Path
) -> None:
    for kind, prefix in (("ed25519", "whsk_"), ("hmac", "whsec_")):
        file = tmp_path / kind
        result = cli("webhook", "keygen", "--file", str(file), "--kind", kind)

        assert result.exit_code == 0
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        text = file.read_text()
        assert text.startswith(prefix)
        assert text.strip().partition("_")[2] not in result.output
        parse_signing_key(text)


def test_keygen_replaces_no_file(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("old")

    result = cli("webhook", "keygen", "--file", str(file))

    assert result.exit_code == 2
    assert "must be new and writable" in result.stderr
    assert file.read_text() == "old"


def test_genuine_call_is_verified_with_the_public_key_and_with_the_file(
    cli: CommandLine, tmp_path: Path, key: tuple[Path, str]
) -> None:
    file, public = key
    call = captured(tmp_path, file)
    from_json = ("--headers", str(tmp_path / "headers.json"), *call[2:])

    for options in (
        (*call, "--public-key", public),
        (*call, "--secret-file", str(file)),
        (*from_json, "--public-key", public),
    ):
        result = cli("webhook", "verify", *options, "-o", "json")
        assert result.exit_code == 0, result.output
        shown = json.loads(result.stdout)
        assert (shown["verified"], shown["id"], shown["signature"]) == (True, "run@1", "v1a")


def test_altered_old_and_foreign_calls_have_the_exit_code_1_and_a_reason(
    cli: CommandLine, tmp_path: Path, key: tuple[Path, str]
) -> None:
    file, public = key
    foreign = tmp_path / "foreign"
    cli("webhook", "keygen", "--file", str(foreign))
    call = captured(tmp_path, file)
    altered = tmp_path / "altered"
    altered.write_bytes(BODY + b" ")

    def code(*options: str) -> str:
        result = cli("webhook", "verify", *options, "-o", "json")
        assert result.exit_code == 1
        return str(json.loads(result.stdout)["code"])

    assert (
        code(*call[:2], "--body", str(altered), "--public-key", public) == "no_matching_signature"
    )
    assert code(*call, "--secret-file", str(foreign)) == "no_matching_signature"
    old = captured(tmp_path, file, second=SECOND - 301)
    assert code(*old, "--public-key", public) == "too_old"
    accepted = cli("webhook", "verify", *old, "--public-key", public, "--tolerance", "6m")
    assert accepted.exit_code == 0


def test_verification_without_a_usable_key_is_wrong_usage(
    cli: CommandLine, tmp_path: Path, key: tuple[Path, str]
) -> None:
    call = captured(tmp_path, key[0])

    for options in ((), ("--public-key", "swordfish"), ("--public-key", "whpk_AAAA")):
        assert cli("webhook", "verify", *call, *options).exit_code == 2
