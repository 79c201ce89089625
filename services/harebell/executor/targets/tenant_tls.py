"""The TLS contexts of tenants with their own CA or client certificate, from their secrets."""

import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from harebell.contract.errors import SecretMissing
from harebell.contract.secret import SecretRef
from harebell.domain.tenant_policy import TenantTls
from harebell.runtime.clock import monotonic
from harebell.runtime.secret_files import INVALID, SecretFiles

MAX_CONTEXTS: Final = 1_000  # tenants; the oldest context is dropped first
MAX_ROTATION: Final = 60.0  # seconds in which a rotation replaces one file after the other

_Content: TypeAlias = tuple[bytes | None, bytes | None, bytes | None]


@dataclass(slots=True)
class _Known:
    """The last usable secrets of a tenant, and the time [s] since which its files are unusable."""

    content: _Content
    context: ssl.SSLContext
    unusable_since: float | None = None


class TlsContexts:
    """The context of each tenant, which a changed secret replaces.

    A rotation replaces the certificate and its key one after the other, and the cache of the
    secrets sees both at different times. The last usable pair remains for `MAX_ROTATION`.
    """

    def __init__(self, files: SecretFiles, *, now: Callable[[], float] = monotonic) -> None:
        self._files = files
        self._now = now
        self._known: dict[str, _Known] = {}

    def of(self, tenant: str, tls: TenantTls) -> ssl.SSLContext:
        """Return the context of a tenant.

        Raise `SecretMissing`, with the code `secret_invalid` for secrets that are no PEM or that do
        not match.
        """
        content = (
            self._read(tenant, tls.ca),
            self._read(tenant, tls.certificate),
            self._read(tenant, tls.key),
        )
        known = self._known.get(tenant)
        if known is not None and known.content == content:
            known.unusable_since = None
            return known.context
        try:
            context = _context(content)
        except SecretMissing:
            if known is None or not self._is_rotating(known):
                raise
            return known.context
        self._known[tenant] = _Known(content, context)
        if len(self._known) > MAX_CONTEXTS:
            del self._known[next(iter(self._known))]
        return context

    def _is_rotating(self, known: _Known) -> bool:
        """Return whether the files have been unusable for at most `MAX_ROTATION`."""
        if known.unusable_since is None:
            known.unusable_since = self._now()
        return self._now() - known.unusable_since <= MAX_ROTATION

    def _read(self, tenant: str, ref: SecretRef | None) -> bytes | None:
        return None if ref is None else self._files.read(tenant, ref.secret)


def _context(content: _Content) -> ssl.SSLContext:
    ca, certificate, key = content
    try:
        context = ssl.create_default_context(cadata=None if ca is None else ca.decode("ascii"))
        if certificate is not None and key is not None:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, ValueError):  # their texts may quote the key
        reason = (
            "The secrets of `tls` must be certificates and their key without a password, as PEM."
        )
        raise SecretMissing(reason, code=INVALID) from None
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load the pair from memory, because `ssl` reads only files and no disk may keep the key."""
    descriptor = os.memfd_create("tls", os.MFD_CLOEXEC)
    with os.fdopen(descriptor, "wb", buffering=0) as file:
        file.write(certificate + b"\n" + key + b"\n")
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=_no_password)


def _no_password() -> bytes:
    """Return an empty password, so that OpenSSL asks no terminal."""
    return b""
