"""Secrets of tenants: one file for each secret, read at its use and cached for seconds."""

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from harebell.contract.errors import SecretMissing
from harebell.contract.secret import NAME_PATTERN
from harebell.runtime.clock import monotonic

MAX_SECRET: Final = 16 * 1024  # bytes of a file
MAX_AGE: Final = 2.0  # seconds until a cached secret is compared with its file again
MAX_CACHED: Final = 10_000  # secrets; the oldest entry is dropped first
INVALID: Final = SecretMissing.invalid_code  # of a file with an unusable value
READ_TRIES: Final = 2  # a volume that is replaced between two steps of a read needs a second try

_NAME: Final = re.compile(NAME_PATTERN)
_TENANT: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_FileVersion: TypeAlias = tuple[int, int, int, int]


@dataclass(slots=True, kw_only=True)
class _CachedSecret:
    value: bytes
    version: _FileVersion
    checked_at: float  # monotonic seconds


class SecretFiles:
    """The secrets below `directory`, which the caller may rotate at any time.

    They are files `<tenant>/<name>`, or `<tenant>.<name>` where files cannot have a directory, such
    as credentials of systemd. Symlinks may lead to another file of the same tenant and to no other
    place: Kubernetes replaces a volume by such symlinks.
    """

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._cache: dict[tuple[str, str], _CachedSecret] = {}

    def read(self, tenant: str, name: str) -> bytes:
        """Return the value of a secret without the newline at its end.

        A changed file is seen after at most MAX_AGE. Raise `SecretMissing`, with the code
        `secret_invalid` for a file that is empty, too large or not readable.
        """
        now = monotonic()
        cached = self._cache.get((tenant, name))
        if cached is not None and now - cached.checked_at < MAX_AGE:
            return cached.value
        try:
            secret = self._read(tenant, name, cached)
        except SecretMissing:
            self._cache.pop((tenant, name), None)
            raise
        self._cache[tenant, name] = secret
        secret.checked_at = now
        if len(self._cache) > MAX_CACHED:
            del self._cache[next(iter(self._cache))]
        return secret.value

    def _read(self, tenant: str, name: str, cached: _CachedSecret | None) -> _CachedSecret:
        if self._directory is None:
            raise SecretMissing(f"The secret {name!r} is missing, because no directory is set.")
        if not _TENANT.fullmatch(tenant) or not _NAME.fullmatch(name):
            raise SecretMissing(f"The tenant and the name of the secret {name!r} must be valid.")
        for _ in range(READ_TRIES):
            try:
                if (path := _find(self._directory, tenant, name)) is not None:
                    return _load(path, name, cached)
            except FileNotFoundError:
                continue
            except OSError as error:  # its text without the path of the file
                text = f"The file of the secret {name!r} must be readable: {error.strerror}."
                raise SecretMissing(text, code=INVALID) from None
            except RuntimeError:
                text = f"The file of the secret {name!r} must not be a loop of symlinks."
                raise SecretMissing(text, code=INVALID) from None
        raise SecretMissing(f"The secret {name!r} is missing, because the tenant has no such file.")


def _find(directory: Path, tenant: str, name: str) -> Path | None:
    """Return the real path of the file, or None without a file inside its permitted place.

    Raise `OSError`.
    """
    root = directory.resolve()
    of_tenant = (root / tenant).resolve()
    nested = (of_tenant / name).resolve()
    if root in of_tenant.parents and of_tenant in nested.parents and nested.exists():
        return nested
    flat_name = f"{tenant}.{name}"  # no tenant contains a dot, so the name is unambiguous
    flat = (root / flat_name).resolve()
    is_own = root in flat.parents and flat.name == flat_name
    return flat if is_own and flat.exists() else None


def _load(path: Path, name: str, cached: _CachedSecret | None) -> _CachedSecret:
    """Return the content of a regular file. Raise `OSError`, also for a symlink.

    A pipe does not block the open, and its kind is refused.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            reason = f"The file of the secret {name!r} must be a regular file."
            raise SecretMissing(reason, code=INVALID)
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if cached is not None and cached.version == version:
            return cached
        content = file.read(MAX_SECRET + 1)
    if len(content) > MAX_SECRET:
        reason = f"The file of the secret {name!r} must have at most {MAX_SECRET} bytes."
        raise SecretMissing(reason, code=INVALID)
    value = content.removesuffix(b"\n").removesuffix(b"\r")
    if not value:
        reason = f"The file of the secret {name!r} must not be empty."
        raise SecretMissing(reason, code=INVALID)
    return _CachedSecret(value=value, version=version, checked_at=0.0)
