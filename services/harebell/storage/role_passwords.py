"""The passwords of the database roles: one for each role, and their verifiers."""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode

ROLES: Final = (
    "harebell_intake",
    "harebell_ticker",
    "harebell_dispatcher",
    "harebell_executor",
    "harebell_dlq_inspector",
    "harebell_auditor",
)
ONE_PASSWORD: Final = "HAREBELL_ROLE_PASSWORD"  # noqa: S105  # the name of a variable
PASSWORDS_FILE: Final = "HAREBELL_ROLE_PASSWORDS_FILE"  # the name of a variable
ITERATIONS: Final = 4096  # the default of PostgreSQL
SALT_BYTES: Final = 16


def read_role_passwords(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the passwords of the variables, by role.

    The file contains a JSON object such as `{"harebell_intake": "..."}`. Roles without an entry get
    the password of HAREBELL_ROLE_PASSWORD, or keep theirs without that variable.
    Raise `InvalidInput` with the name of the variable.
    """
    passwords: dict[str, str] = {}
    if (common := environ.get(ONE_PASSWORD)) is not None:
        passwords = dict.fromkeys(ROLES, common)
    if (path := environ.get(PASSWORDS_FILE)) is not None:
        passwords |= _read(Path(path))
    for role, password in passwords.items():
        if not password or not password.isascii() or not password.isprintable():
            reason = f"The password of {role} must be printable ASCII text."
            raise InvalidInput(reason, field=PASSWORDS_FILE, code="invalid_setting")
    return passwords


def scram_verifier(password: str, salt: bytes) -> str:
    """Return the SCRAM-SHA-256 verifier that PostgreSQL stores for an ASCII password."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode("ascii"), salt, ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    texts = [base64.b64encode(each).decode() for each in (salt, stored, server)]
    return f"SCRAM-SHA-256${ITERATIONS}:{texts[0]}${texts[1]}:{texts[2]}"


def _read(path: Path) -> dict[str, str]:
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = f"The file of the passwords must be readable: {error.strerror}."
        raise InvalidInput(reason, field=PASSWORDS_FILE, code="invalid_setting") from None
    document = decode(content)
    if not isinstance(document, dict) or not all(
        role in ROLES and isinstance(password, str) for role, password in document.items()
    ):
        reason = (
            f"The file must be a JSON object of passwords, with these names: {', '.join(ROLES)}."
        )
        raise InvalidInput(reason, field=PASSWORDS_FILE, code="invalid_setting")
    return document
