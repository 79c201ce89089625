"""The TLS contexts of tenants with their own CA or client certificate, from their secrets."""

import os
import ssl
from typing import Final, TypeAlias

from harebell.contract.errors import SecretMissing
from harebell.contract.secret import SecretRef
from harebell.domain.tenant_policy import TenantTls
from harebell.runtime.secret_files import INVALID, SecretFiles

MAX_CONTEXTS: Final = 1_000  # tenants; the oldest context is dropped first

_Content: TypeAlias = tuple[bytes | None, bytes | None, bytes | None]


class TlsContexts:
    """The context of each tenant, which a changed secret replaces."""

    def __init__(self, files: SecretFiles) -> None:
        self._files = files
        self._contexts: dict[str, tuple[_Content, ssl.SSLContext]] = {}

    def of(self, tenant: str, tls: TenantTls) -> ssl.SSLContext:
        """Return the context of a tenant.

        Raise `SecretMissing`, with the code `secret_invalid` for secrets that are no PEM.
        """
        content = (
            self._read(tenant, tls.ca),
            self._read(tenant, tls.certificate),
            self._read(tenant, tls.key),
        )
        known = self._contexts.get(tenant)
        if known is not None and known[0] == content:
            return known[1]
        context = _context(content)
        self._contexts[tenant] = (content, context)
        if len(self._contexts) > MAX_CONTEXTS:
            del self._contexts[next(iter(self._contexts))]
        return context

    def _read(self, tenant: str, ref: SecretRef | None) -> bytes | None:
        return None if ref is None else self._files.read(tenant, ref.secret)


def _context(content: _Content) -> ssl.SSLContext:
    ca, certificate, key = content
    try:
        context = ssl.create_default_context(cadata=None if ca is None else ca.decode("ascii"))
        if certificate is not None and key is not None:
            _load_pair(context, certificate, key)
    except (ssl.SSLError, ValueError):  # their texts may quote the key
        reason = "The secrets of `tls` must be certificates and a key without a password, as PEM."
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
