"""Schedules in files, folders or on standard input: JSON or YAML, one object or several."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson

from harebell.cli.arguments.documents import check_objects, read_body
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.runtime.yaml_document import MAX_VALUES, parse_yaml_documents

SUFFIXES: Final = (".json", ".yaml", ".yml")
STDIN: Final = "-"
MAX_FILES: Final = 10_000  # files of one folder
MAX_FILE_SIZE: Final = 16 * 1024 * 1024  # bytes of a file whose schedules are sent one by one


def read_documents(path: str, stdin: BinaryIO) -> list[dict[str, Any]]:
    """Return all schedules of a file, of every JSON or YAML file in a folder, or of `stdin`.

    Raises `InvalidInput`, also for a link from the folder to a file outside it.
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
    root = folder.resolve()
    for each in folder.rglob("*"):
        if each.suffix in SUFFIXES and each.is_file():
            if not each.resolve().is_relative_to(root):
                reason = f"The link {each} must lead to a file in the folder {folder}."
                raise InvalidInput(reason, code="outside_folder")
            yield each


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

    The values pass through JSON, which refuses integers of more than 64 bits.
    """
    found = [each.value for each in parse_yaml_documents(body, max_values=MAX_VALUES)]
    documents = [each for each in found if each is not None]
    try:
        value = decode(orjson.dumps(documents))
    except orjson.JSONEncodeError as error:
        reason = f"The document must contain only JSON values: {error}."
        raise InvalidInput(reason, code="not_json") from None
    items = [item for each in value for item in (each if isinstance(each, list) else [each])]
    check_objects(items)
    return items
