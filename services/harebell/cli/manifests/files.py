"""Schedules in files, folders or on standard input: JSON or YAML, one object or several."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
import yaml

from harebell.cli.arguments.documents import check_objects, read_body
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode

SUFFIXES: Final = (".json", ".yaml", ".yml")
STDIN: Final = "-"
MAX_FILES: Final = 10_000  # files of one folder
MAX_FILE_SIZE: Final = 16 * 1024 * 1024  # bytes of a file whose schedules are sent one by one


def read_documents(path: str, stdin: BinaryIO) -> list[dict[str, Any]]:
    """Return all schedules of a file, of every JSON or YAML file in a folder, or of `stdin`.

    Raises `InvalidInput`.
    """
    if path == STDIN:
        return _items(read_body(stdin, MAX_FILE_SIZE))
    source = Path(path)
    files = sorted(_files(source)) if source.is_dir() else [source]
    if len(files) > MAX_FILES:
        reason = f"The folder {path} must have at most {MAX_FILES} files, not {len(files)}."
        raise InvalidInput(reason, code="too_large")
    return [item for file in files for item in _items_of_file(file)]


def _files(folder: Path) -> Iterator[Path]:
    return (each for each in folder.rglob("*") if each.suffix in SUFFIXES and each.is_file())


def _items_of_file(file: Path) -> list[dict[str, Any]]:
    try:
        with file.open("rb") as opened:
            return _items(read_body(opened, MAX_FILE_SIZE))
    except OSError as error:
        reason = f"The file {file} cannot be read: {error.strerror}."
        raise InvalidInput(reason, code="unreadable") from None
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.reason}", code=error.code) from None


def _items(body: bytes) -> list[dict[str, Any]]:
    """Return the objects of YAML documents, which include JSON.

    The values pass through JSON, so that a YAML file and a JSON file mean the same.
    """
    try:
        documents = [each for each in yaml.load_all(body, Loader=_Loader) if each is not None]
        value = decode(orjson.dumps(documents))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        reason = f"The document must be JSON or YAML: {error}."
        raise InvalidInput(reason, code="not_yaml") from None
    except (orjson.JSONEncodeError, RecursionError) as error:
        reason = f"The document must contain only JSON values: {error}."
        raise InvalidInput(reason, code="not_json") from None
    items = [item for each in value for item in (each if isinstance(each, list) else [each])]
    check_objects(items)
    return items


class _Loader(yaml.SafeLoader):
    """A YAML loader that reads `2026-01-01` as a text, as JSON does."""


_TEXT_TAGS: Final = {"tag:yaml.org,2002:timestamp"}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _TEXT_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
