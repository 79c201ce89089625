"""The archive of removed runs: one directory for each day, with a manifest and compressed files.

Each part is a file of runs and a file of attempts, JSON Lines with gzip.
A day's manifest names its parts, and a file that no manifest names has no meaning.
Every file has the mode 0600, because outcomes and errors belong to the tenants.
"""

import gzip
import hashlib
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from harebell.contract.errors import InvalidInput, Transient
from harebell.contract.json_codec import decode_trusted

FORMAT: Final = "harebell-archive"
SCHEMA_VERSION: Final = 1
MANIFEST: Final = "manifest.json"
KINDS: Final = ("runs", "attempts")
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
COMPRESSION_LEVEL: Final = 6
BLOCK_SIZE: Final = 1024 * 1024  # bytes of one read
MAX_MANIFEST_SIZE: Final = 16 * 1024 * 1024  # bytes
MAX_LINE_SIZE: Final = 64 * 1024 * 1024  # bytes

_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FILE: Final = re.compile(r"(runs|attempts)-[0-9]{1,9}\.jsonl\.gz")


class ArchiveFault(Transient):
    """A file of the archive that is missing, not writable, or different from its manifest."""

    code = "archive_fault"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFile:
    """One file of a part: its name, its number of rows, its size and its SHA-256."""

    name: str
    count: int
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchivePart:
    """The files of one part, by kind."""

    number: int
    files: Mapping[str, ArchiveFile]

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(each.bytes for each in self.files.values())


@dataclass(frozen=True, slots=True)
class ArchiveDay:
    """One day of the archive."""

    day: date
    parts: tuple[ArchivePart, ...]

    def count(self, kind: str) -> int:
        """Return the number of rows of a kind."""
        return sum(part.files[kind].count for part in self.parts)

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(part.size for part in self.parts)


@dataclass(slots=True, kw_only=True)
class PartWriter:
    """A writer of one file, which gets its name only after its content is on the disk.

    `owner` makes the temporary name unique, so that two writers never write to one file.
    """

    directory: Path
    name: str
    owner: str
    _file: BinaryIO | None = None
    _compressor: Any = None
    _hash: Any = field(default_factory=hashlib.sha256)
    _count: int = 0
    _bytes: int = 0

    @property
    def _temporary(self) -> Path:
        return self.directory / f".{self.name}.{self.owner}.tmp"

    def open(self) -> None:
        """Create the directory and an empty temporary file."""
        self.directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        self._temporary.unlink(missing_ok=True)
        descriptor = os.open(self._temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
        self._file = os.fdopen(descriptor, "wb")
        # A time or a name in the header would give the same rows another checksum.
        self._compressor = zlib.compressobj(COMPRESSION_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)

    def write(self, lines: Iterable[str]) -> None:
        """Append rows, which are JSON texts."""
        texts = list(lines)
        self._count += len(texts)
        text = "".join(f"{each}\n" for each in texts)
        self._append(self._compressor.compress(text.encode()))

    def close(self) -> ArchiveFile:
        """Write the file to the disk, verify it, and give it its name."""
        assert self._file is not None  # noqa: S101  # `open` was called
        self._append(self._compressor.flush())
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        written = ArchiveFile(
            name=self.name, count=self._count, bytes=self._bytes, sha256=self._hash.hexdigest()
        )
        verify_file(self._temporary, written)
        self._temporary.replace(self.directory / self.name)
        _sync_directory(self.directory)
        return written

    def discard(self) -> None:
        """Remove the temporary file, if it exists."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._temporary.unlink(missing_ok=True)

    def _append(self, data: bytes) -> None:
        assert self._file is not None  # noqa: S101  # `open` was called
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)


def file_name(kind: str, number: int) -> str:
    return f"{kind}-{number}.jsonl.gz"


def record_part(root: Path, day: date, part: ArchivePart, *, owner: str) -> None:
    """Add a part to the manifest of its day, or replace the part with the same number."""
    directory = root / day.isoformat()
    parts = {each.number: each for each in _parts_of(directory)} | {part.number: part}
    manifest = {
        "format": FORMAT,
        "schema_version": SCHEMA_VERSION,
        "day": day.isoformat(),
        "parts": [
            {"part": each.number} | {kind: _file_record(each.files[kind]) for kind in KINDS}
            for each in sorted(parts.values(), key=lambda each: each.number)
        ],
    }
    temporary = directory / f".{MANIFEST}.{owner}.tmp"
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MANIFEST)
    _sync_directory(directory)
    _sync_directory(root)


def remove_temporary_files(root: Path, day: date) -> None:
    """Remove the temporary files that a killed writer has left in the directory of a day.

    A writer that has lost its lease fails without its file, and repeats nothing.
    """
    for path in (root / day.isoformat()).glob(".*.tmp"):
        path.unlink(missing_ok=True)


def list_days(root: Path) -> list[date]:
    """Return the days with a manifest, the oldest first.

    Raise `InvalidInput` if the directory is not readable.
    """
    try:
        names = [path.name for path in root.iterdir() if (path / MANIFEST).is_file()]
    except OSError as error:
        reason = f"The archive must be a readable directory: {error.strerror}."
        raise InvalidInput(reason, field="dir", code="invalid_archive") from None
    days: list[date] = []
    for name in sorted(names):
        if _DAY.fullmatch(name):
            with suppress(ValueError):
                days.append(date.fromisoformat(name))
    return days


def read_day(root: Path, day: date) -> ArchiveDay:
    """Return the manifest of a day. Raise `ArchiveFault` for an invalid manifest."""
    return ArchiveDay(day, tuple(_parts_of(root / day.isoformat())))


def verify_part(root: Path, day: date, part: ArchivePart) -> None:
    """Compare each file of a part with its manifest. Raise `ArchiveFault` for a difference."""
    for each in part.files.values():
        verify_file(root / day.isoformat() / each.name, each)


def verify_file(path: Path, expected: ArchiveFile) -> None:
    """Read a file again. Raise `ArchiveFault` if its checksum or its number of rows differs."""
    digest, size, count = hashlib.sha256(), 0, 0
    decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        with path.open("rb") as file:
            while block := file.read(BLOCK_SIZE):
                digest.update(block)
                size += len(block)
                count += decompressor.decompress(block).count(b"\n")
        count += decompressor.flush().count(b"\n")
    except OSError as error:
        raise ArchiveFault(
            f"The file {expected.name} must be readable: {error.strerror}."
        ) from None
    except zlib.error:
        raise ArchiveFault(f"The file {expected.name} must be complete gzip data.") from None
    if digest.hexdigest() != expected.sha256 or size != expected.bytes:
        raise ArchiveFault(f"The file {expected.name} must have the checksum of its manifest.")
    if count != expected.count or not decompressor.eof:
        reason = f"The file {expected.name} must have {expected.count} rows, not {count}."
        raise ArchiveFault(reason)


def read_rows(root: Path, day: ArchiveDay, kind: str) -> Iterator[dict[str, Any]]:
    """Yield the rows of a day, in the order of each part. Raise `ArchiveFault`."""
    for part in day.parts:
        name = part.files[kind].name
        try:
            with gzip.open(root / day.day.isoformat() / name, "rb") as file:
                while line := file.readline(MAX_LINE_SIZE):
                    yield decode_trusted(line)
        except (OSError, EOFError, zlib.error) as error:
            raise ArchiveFault(f"The file {name} must be readable: {error}.") from None


def _parts_of(directory: Path) -> list[ArchivePart]:
    path = directory / MANIFEST
    if not path.exists():
        return []
    try:
        with path.open("rb") as file:
            manifest: Any = decode_trusted(file.read(MAX_MANIFEST_SIZE))
        if manifest["format"] != FORMAT or manifest["schema_version"] != SCHEMA_VERSION:
            reason = (
                f"The manifest of {directory.name} must have the schema version {SCHEMA_VERSION}, "
                f"not {manifest['schema_version']}."
            )
            raise ArchiveFault(reason)
        return [_part(each) for each in manifest["parts"]]
    except (OSError, InvalidInput, KeyError, TypeError, ValueError) as error:
        reason = f"The manifest of {directory.name} must be valid ({type(error).__name__})."
        raise ArchiveFault(reason) from None


def _part(record: Mapping[str, Any]) -> ArchivePart:
    files = {
        kind: ArchiveFile(
            name=_checked_name(record[kind]["file"]),
            count=int(record[kind]["count"]),
            bytes=int(record[kind]["bytes"]),
            sha256=str(record[kind]["sha256"]),
        )
        for kind in KINDS
    }
    return ArchivePart(int(record["part"]), files)


def _checked_name(name: str) -> str:
    """Return the name of a file in the directory. Another name could read any file."""
    if not _FILE.fullmatch(name):
        raise ValueError(name)
    return name


def _file_record(file: ArchiveFile) -> dict[str, Any]:
    return {"file": file.name, "count": file.count, "bytes": file.bytes, "sha256": file.sha256}


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
