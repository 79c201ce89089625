"""`harebell webhook`: the verification of a captured call, and new signing keys.

The commands need no broker.
"""

import os
import secrets
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, assert_never

import orjson
import typer

from harebell.cli.arguments.documents import read_body
from harebell.cli.arguments.values import duration
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.contract.errors import InvalidInput, SigningKeyInvalid
from harebell.contract.types import instant_text
from harebell.domain.webhook_signature import (
    ED25519_BYTES,
    MAX_KEY_LENGTH,
    NotVerified,
    VerificationKey,
    Verified,
    hmac_text,
    parse_verification_key,
    private_key,
    private_text,
    verify,
)

app = typer.Typer()

MAX_HEADERS_SIZE: Final = 64 * 1024  # bytes
MAX_BODY_SIZE: Final = 1024 * 1024  # bytes
HMAC_BYTES: Final = 32  # of a new symmetric key
KEY_FILE_MODE: Final = 0o600


class KeyKind(StrEnum):
    """The kinds of signing keys."""

    ED25519 = "ed25519"
    HMAC = "hmac"


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of `webhook verify`."""

    headers: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--headers",
            metavar="FILE",
            help="Read the headers from this file (lines `Name: value`, or one JSON object).",
        ),
    ]
    body: Annotated[
        typer.FileBinaryRead,
        typer.Option(
            "--body", metavar="FILE|-", help="Read the body from this file, exactly as received."
        ),
    ]
    secret_files: Annotated[
        list[typer.FileBinaryRead] | None,
        typer.Option(
            "--secret-file",
            metavar="FILE",
            help="Accept the key in this file (whsec_ or whsk_, repeatable).",
        ),
    ] = None
    public_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--public-key", metavar="KEY", help="Accept this public key (whpk_, repeatable)."
        ),
    ] = None
    tolerance: Annotated[
        str,
        typer.Option(
            "--tolerance",
            metavar="DURATION",
            help="Accept calls that are at most this old or this new (such as 5m).",
        ),
    ] = "5m"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeygenOptions:
    """The options of `webhook keygen`."""

    file: Annotated[
        Path,
        typer.Option(
            "--file", metavar="FILE", help="Write the key to this new file with the mode 0600."
        ),
    ]
    kind: Annotated[
        KeyKind,
        typer.Option("--kind", help="Make a key pair (ed25519) or a symmetric key (hmac)."),
    ] = KeyKind.ED25519


@command(app, "verify", global_options=("output",))
def verify_call(session: Session, options: VerifyOptions) -> ExitCode:
    """Verify the signature of a captured call. The exit code is 1 for a call that is not genuine.

    One of the given keys must have signed the id, the time and the body of the call. Give the
    headers of an HTTP request or of an AMQP message; further ones have no effect.
    """
    result = verify(
        _headers(read_body(options.headers, MAX_HEADERS_SIZE)),
        read_body(options.body, MAX_BODY_SIZE),
        keys=_keys(options),
        now=session.now(),
        tolerance=duration(options.tolerance, field="tolerance"),
    )
    match result:
        case Verified(message_id, sent_at, version):
            session.output.print_record(
                {
                    "verified": True,
                    "id": message_id,
                    "sent_at": instant_text(sent_at),
                    "signature": version,
                }
            )
            return ExitCode.DONE
        case NotVerified(code, reason):
            session.output.print_record({"verified": False, "code": code, "reason": reason})
            return ExitCode.FAILED
        case _:
            assert_never(result)


@command(app, "keygen", global_options=("output",))
def make_key(session: Session, options: KeygenOptions) -> ExitCode:
    """Make a signing key in a new file, and print the public key of a key pair.

    The file belongs below HAREBELL_SECRETS_DIR, in the folder of the tenant. The command never
    prints a secret and replaces no file.
    """
    record: dict[str, Any] = {"file": str(options.file), "kind": options.kind.value}
    if options.kind is KeyKind.ED25519:
        seed = secrets.token_bytes(ED25519_BYTES)
        text = private_text(seed)
        record["public_key"] = private_key(seed).public_key().text()
    else:
        text = hmac_text(secrets.token_bytes(HMAC_BYTES))
    _write_new(options.file, text)
    session.output.print_record(record)
    return ExitCode.DONE


def _keys(options: VerifyOptions) -> list[VerificationKey]:
    """Return the given keys. Raises `InvalidInput` without a key or for an invalid key."""
    limit = MAX_KEY_LENGTH + 2  # a newline at the end
    texts = [
        read_body(file, limit).decode("ascii", errors="replace")
        for file in options.secret_files or ()
    ]
    texts += options.public_keys or ()
    if not texts:
        reason = "The command needs a key: pass --secret-file or --public-key."
        raise InvalidInput(reason, code="no_key")
    try:
        return [parse_verification_key(text) for text in texts]
    except SigningKeyInvalid as error:
        raise InvalidInput(error.reason, code=error.code) from None


def _headers(content: bytes) -> dict[str, str]:
    """Return the headers of a captured call. Raises `InvalidInput`.

    A request line, such as that of `curl -v`, has no effect.
    """
    text = content.decode("latin-1")
    if not text.lstrip().startswith("{"):
        lines = (line.partition(":") for line in text.splitlines() if ":" in line)
        return {name.strip(" <>"): value.strip() for name, _, value in lines}
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"The headers must be valid JSON: {error}.", field="headers") from None
    return {str(name): str(value) for name, value in document.items()}


def _write_new(path: Path, text: str) -> None:
    """Write a file that does not exist. Raises `InvalidInput`."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, KEY_FILE_MODE)
    except OSError as error:
        reason = f"The file {path} must be new and writable: {error.strerror}."
        raise InvalidInput(reason, field="file", code="not_writable") from None
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{text}\n")
