"""Schedules as files or standard input hold them: JSON or YAML, one object or many."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import orjson
import yaml

from harebell.contract.commands import MAX_BODY
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode

Document: TypeAlias = dict[str, Any] | list[dict[str, Any]]

SUFFIXES: Final = (".json", ".yaml", ".yml")
STDIN: Final = "-"
MAX_FILES: Final = 10_000  # of one folder
MAX_FILE: Final = 16 * 1024 * 1024  # bytes of what is sent one by one


def read_document(file: BinaryIO) -> Document:
    """Raises `Malformed`. What the objects say is checked by Harebell."""
    document = decode(_body(file, MAX_BODY))
    _check(document if isinstance(document, list) else [document])
    return document  # type: ignore[no-any-return]  # checked above


def read_documents(path: str, stdin: BinaryIO) -> list[dict[str, Any]]:
    """All schedules of a file, or of every JSON or YAML file in a folder. Raises `Malformed`."""
    if path == STDIN:
        return _items(_body(stdin, MAX_FILE))
    place = Path(path)
    files = sorted(_files(place)) if place.is_dir() else [place]
    if len(files) > MAX_FILES:
        raise InvalidInput(f"{path} has over {MAX_FILES} files", code="too_large")
    return [item for file in files for item in _of_file(file)]


def _files(folder: Path) -> Iterator[Path]:
    return (each for each in folder.rglob("*") if each.suffix in SUFFIXES and each.is_file())


def _of_file(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open("rb") as opened:
            return _items(_body(opened, MAX_FILE))
    except OSError as error:
        raise InvalidInput(f"{file}: {error.strerror}", code="unreadable") from None
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.reason}", code=error.code) from None


def _items(body: bytes) -> list[dict[str, Any]]:
    """YAML holds JSON too; what it reads goes through JSON, so that both mean the same."""
    try:
        documents = [each for each in yaml.load_all(body, Loader=_Plain) if each is not None]
        value = decode(orjson.dumps(documents))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidInput(f"is neither JSON nor YAML: {error}", code="not_yaml") from None
    except (orjson.JSONEncodeError, RecursionError) as error:
        raise InvalidInput(f"cannot be written as JSON: {error}", code="not_json") from None
    items = [item for each in value for item in (each if isinstance(each, list) else [each])]
    _check(items)
    return items


class _Plain(yaml.SafeLoader):
    """Without instants of its own: `2026-01-01` is a text, as JSON has it."""


_TEXTS: Final = {"tag:yaml.org,2002:timestamp"}
_Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXTS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _body(file: BinaryIO, limit: int) -> bytes:
    body = file.read(limit + 1)
    if len(body) > limit:
        raise InvalidInput(f"the file is over {limit} bytes", code="too_large")
    return body


def _check(items: list[Any]) -> None:
    if not items or not all(isinstance(item, dict) for item in items):
        raise InvalidInput("must be an object, or an array of objects", code="not_a_schedule")
