"""Standard Webhooks 1.0: the keys, the signatures of a message and their verification.

The signed content is `<id>.<timestamp>.<body>` with the body as sent. The id contains no point, or
else one signature could belong to two different messages.
"""

import base64
import hmac
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias
from urllib.parse import quote

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from harebell.contract.amqp_names import WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP
from harebell.contract.errors import SigningKeyInvalid
from harebell.contract.types import duration_text

HMAC_PREFIX: Final = "whsec_"
PRIVATE_PREFIX: Final = "whsk_"
PUBLIC_PREFIX: Final = "whpk_"
HMAC_VERSION: Final = "v1"
ED25519_VERSION: Final = "v1a"
MIN_HMAC_BYTES: Final = 24
MAX_HMAC_BYTES: Final = 64
ED25519_BYTES: Final = 32  # of the seed of a private key, and of a public key
MAX_KEY_LENGTH: Final = 256  # characters of a key as text
MAX_SIGNATURES: Final = 32  # in the header of one message; a verification ignores the others
DEFAULT_TOLERANCE: Final = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class HmacKey:
    """A symmetric key, which signs and verifies. Its representation omits the secret."""

    secret: bytes = field(repr=False)

    @property
    def version(self) -> str:
        return HMAC_VERSION

    def sign(self, content: bytes) -> bytes:
        return hmac.digest(self.secret, content, "sha256")

    def verifies(self, content: bytes, signature: bytes) -> bool:
        return hmac.compare_digest(self.sign(content), signature)


@dataclass(frozen=True, slots=True)
class PublicKey:
    """An ed25519 public key, which verifies."""

    key: Ed25519PublicKey

    @property
    def version(self) -> str:
        return ED25519_VERSION

    def verifies(self, content: bytes, signature: bytes) -> bool:
        try:
            self.key.verify(signature, content)
        except InvalidSignature:
            return False
        return True

    def text(self) -> str:
        """Return the key in the form that receivers configure."""
        return PUBLIC_PREFIX + _base64(self.key.public_bytes_raw())


@dataclass(frozen=True, slots=True)
class PrivateKey:
    """An ed25519 private key, which signs. Its representation omits the key."""

    key: Ed25519PrivateKey = field(repr=False)

    @property
    def version(self) -> str:
        return ED25519_VERSION

    def sign(self, content: bytes) -> bytes:
        return self.key.sign(content)

    def public_key(self) -> PublicKey:
        return PublicKey(self.key.public_key())


SigningKey: TypeAlias = HmacKey | PrivateKey
VerificationKey: TypeAlias = HmacKey | PublicKey


@dataclass(frozen=True, slots=True)
class Verified:
    """A message with a valid signature. `version` is that of the signature."""

    message_id: str
    sent_at: datetime
    version: str


@dataclass(frozen=True, slots=True)
class NotVerified:
    """A message that a receiver must not accept."""

    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class MessageSigner:
    """The keys of a message, its id and the second [Unix time] in which it is sent."""

    keys: Sequence[SigningKey]
    message_id: str
    second: int

    def headers(self, body: bytes) -> dict[str, str]:
        """Return the three headers of the message. `body` contains the bytes as sent."""
        content = _content(self.message_id, str(self.second), body)
        signatures = (f"{key.version},{_base64(key.sign(content))}" for key in self.keys)
        return {
            WEBHOOK_ID: self.message_id,
            WEBHOOK_TIMESTAMP: str(self.second),
            WEBHOOK_SIGNATURE: " ".join(signatures),
        }


def message_id_of(event_id: str) -> str:
    """Return the id of an event as the id of a message, without points and in ASCII.

    Different events have different results.
    """
    return quote(event_id, safe="/:@").replace(".", "%2E")


def parse_signing_key(text: str) -> SigningKey:
    """Return the key of a text such as `whsec_<base64>` or `whsk_<base64>`.

    Raise `SigningKeyInvalid`, whose reason contains no part of the text.
    """
    text = text.strip()
    if text.startswith(HMAC_PREFIX):
        return hmac_key(_decode(text.removeprefix(HMAC_PREFIX)))
    if text.startswith(PRIVATE_PREFIX):
        return private_key(_decode(text.removeprefix(PRIVATE_PREFIX)))
    reason = f"The signing key must begin with {HMAC_PREFIX} or {PRIVATE_PREFIX}."
    raise SigningKeyInvalid(reason)


def parse_verification_key(text: str) -> VerificationKey:
    """Return the key of a text with any of the three prefixes. Raise `SigningKeyInvalid`."""
    text = text.strip()
    if text.startswith(PUBLIC_PREFIX):
        raw = _decode(text.removeprefix(PUBLIC_PREFIX))
        if len(raw) != ED25519_BYTES:
            reason = f"The public key must have {ED25519_BYTES} bytes, not {len(raw)}."
            raise SigningKeyInvalid(reason)
        return PublicKey(Ed25519PublicKey.from_public_bytes(raw))
    key = parse_signing_key(text)
    return key.public_key() if isinstance(key, PrivateKey) else key


def hmac_key(secret: bytes) -> HmacKey:
    """Return the symmetric key with these bytes. Raise `SigningKeyInvalid`."""
    if not MIN_HMAC_BYTES <= len(secret) <= MAX_HMAC_BYTES:
        bounds = f"{MIN_HMAC_BYTES} to {MAX_HMAC_BYTES} bytes"
        raise SigningKeyInvalid(f"The signing key must have {bounds}, not {len(secret)}.")
    return HmacKey(secret)


def private_key(raw: bytes) -> PrivateKey:
    """Return the private key of a seed, or of a seed and its public key.

    Raise `SigningKeyInvalid`.
    """
    if len(raw) not in {ED25519_BYTES, 2 * ED25519_BYTES}:
        reason = f"The private key must have {ED25519_BYTES} bytes, not {len(raw)}."
        raise SigningKeyInvalid(reason)
    key = PrivateKey(Ed25519PrivateKey.from_private_bytes(raw[:ED25519_BYTES]))
    if raw[ED25519_BYTES:] not in {b"", key.public_key().key.public_bytes_raw()}:
        raise SigningKeyInvalid("The private key must end with its own public key.")
    return key


def hmac_text(secret: bytes) -> str:
    """Return a symmetric key in the form that both sides configure."""
    return HMAC_PREFIX + _base64(secret)


def private_text(seed: bytes) -> str:
    """Return a private key in the form that the sender configures."""
    return PRIVATE_PREFIX + _base64(seed)


def verify(
    headers: Mapping[str, str],
    body: bytes,
    *,
    keys: Iterable[VerificationKey],
    now: datetime,
    tolerance: timedelta = DEFAULT_TOLERANCE,
) -> Verified | NotVerified:
    """Return whether one of the keys has signed the message within the tolerance of `now`."""
    lowered = {name.lower(): value for name, value in headers.items()}
    missing = [
        name for name in (WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE) if not lowered.get(name)
    ]
    if missing:
        return NotVerified("missing_header", f"The message has no header {', '.join(missing)}.")
    message_id, second = lowered[WEBHOOK_ID], lowered[WEBHOOK_TIMESTAMP]
    sent_at = _time_of(second)
    if sent_at is None:
        reason = f"The header {WEBHOOK_TIMESTAMP} must be a number of seconds since 1970."
        return NotVerified("invalid_timestamp", reason)
    if abs(now - sent_at) > tolerance:
        code, word = ("too_old", "older") if sent_at < now else ("too_new", "newer")
        reason = f"The message is {word} than the tolerance of {duration_text(tolerance)}."
        return NotVerified(code, reason)
    version = _matching_version(
        lowered[WEBHOOK_SIGNATURE], _content(message_id, second, body), list(keys)
    )
    if version is None:
        reason = "No signature of the message belongs to its content and to a given key."
        return NotVerified("no_matching_signature", reason)
    return Verified(message_id, sent_at, version)


def _matching_version(header: str, content: bytes, keys: Sequence[VerificationKey]) -> str | None:
    for each in header.split(" ")[:MAX_SIGNATURES]:
        version, _, text = each.partition(",")
        try:
            signature = base64.b64decode(text, validate=True)
        except ValueError:  # also for characters outside ASCII
            continue
        if any(key.version == version and key.verifies(content, signature) for key in keys):
            return version
    return None


def _time_of(second: str) -> datetime | None:
    if not (second.isascii() and second.isdigit()):
        return None
    try:
        return datetime.fromtimestamp(int(second), UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _content(message_id: str, second: str, body: bytes) -> bytes:
    return b"%b.%b.%b" % (message_id.encode(), second.encode(), body)


def _decode(text: str) -> bytes:
    try:
        return base64.b64decode(text[:MAX_KEY_LENGTH], validate=True)
    except ValueError:
        raise SigningKeyInvalid("The signing key must be base64 after its prefix.") from None


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
