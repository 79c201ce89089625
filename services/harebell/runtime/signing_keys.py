"""The signing keys of tenants, parsed once for each content of their files."""

from collections.abc import Sequence
from typing import Final, Protocol

from harebell.contract.errors import SigningKeyInvalid
from harebell.domain.webhook_signature import SigningKey, parse_signing_key

MAX_PARSED: Final = 10_000  # keys; the oldest entry is dropped first


class SecretReader(Protocol):
    """A source of secrets, such as `SecretFiles`. It caches, so each call reads one secret."""

    def read(self, tenant: str, name: str) -> bytes: ...


class SigningKeys:
    """The keys below a directory of secrets. A rotated file replaces its key at the next call."""

    def __init__(self, secrets: SecretReader) -> None:
        self._secrets = secrets
        self._parsed: dict[tuple[str, str], tuple[bytes, SigningKey]] = {}

    def read(self, tenant: str, names: Sequence[str]) -> list[SigningKey]:
        """Return the keys with these names, in order.

        Raise `SecretMissing` or `SigningKeyInvalid`, with the name of the key in the reason.
        """
        return [self._read(tenant, name) for name in names]

    def _read(self, tenant: str, name: str) -> SigningKey:
        content = self._secrets.read(tenant, name)
        parsed = self._parsed.get((tenant, name))
        if parsed is not None and parsed[0] == content:
            return parsed[1]
        try:
            key = parse_signing_key(content.decode(errors="replace"))
        except SigningKeyInvalid as error:
            reason = f"The secret {name!r} is no signing key: {error.reason}"
            raise SigningKeyInvalid(reason, field="sign") from None
        self._parsed[tenant, name] = content, key
        if len(self._parsed) > MAX_PARSED:
            del self._parsed[next(iter(self._parsed))]
        return key
