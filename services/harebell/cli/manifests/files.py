"""Schedules in files, folders or on standard input: JSON or YAML, one object or several."""

from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

import orjson

from harebell.cli.arguments.documents import check_objects, read_body
from harebell.cli.manifests.manifest import Manifest
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.runtime.yaml_document import MAX_VALUES, parse_yaml_documents

SUFFIXES: Final = (".json", ".yaml", ".yml")
STDIN: Final = "-"
STDIN_NAME: Final = "standard input"
# Kubernetes keeps the content of a mounted ConfigMap in `..data`, and links to it beside that.
INTERNAL_PREFIX: Final = ".."
MAX_FILES: Final = 10_000  # files of one folder
MAX_FILE_SIZE: Final = 16 * 1024 * 1024  # bytes of a file whose schedules are sent one by one


def read_manifests(path: str, stdin: BinaryIO) -> list[Manifest]:
    """Return all schedules of a file, of every JSON or YAML file in a folder, or of `stdin`.

    Raises `InvalidInput`, also for a link from the folder to a file outside it.
    """
    if path == STDIN:
        return _manifests(read_body(stdin, MAX_FILE_SIZE), STDIN_NAME)
    source = Path(path)
    files = _files(source) if source.is_dir() else {source: source}
    if len(files) > MAX_FILES:
        reason = f"The folder {path} must have at most {MAX_FILES} files, not {len(files)}."
        raise InvalidInput(reason, code="too_large")
    return [item for target, name in files.items() for item in _manifests_of_file(target, name)]


def _files(folder: Path) -> dict[Path, Path]:
    """Return the files of a folder without their links, each with its first name in the folder."""
    root = folder.resolve()
    files: dict[Path, Path] = {}
    for each in sorted(_names(folder)):
        target = each.resolve()
        if not target.is_relative_to(root):
            reason = f"The link {each} must lead to a file in the folder {folder}."
            raise InvalidInput(reason, code="outside_folder")
        files.setdefault(target, each)
    return files


def _names(folder: Path) -> Iterator[Path]:
    for each in folder.rglob("*"):
        parts = each.relative_to(folder).parts
        is_internal = any(part.startswith(INTERNAL_PREFIX) for part in parts)
        if each.suffix in SUFFIXES and not is_internal and each.is_file():
            yield each


def _manifests_of_file(file: Path, name: Path) -> list[Manifest]:
    try:
        with file.open("rb") as opened:
            return _manifests(read_body(opened, MAX_FILE_SIZE), str(name))
    except OSError as error:
        reason = f"The file {name} cannot be read: {error.strerror}."
        raise InvalidInput(reason, code="unreadable") from None
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error.reason}", code=error.code) from None


def _manifests(body: bytes, file: str) -> list[Manifest]:
    """Return the objects of YAML documents, which include JSON.

    The values pass through JSON, which refuses integers of more than 64 bits.
    """
    found = parse_yaml_documents(body, max_values=MAX_VALUES)
    documents = [each for each in found if each.value is not None]
    try:
        values = decode(orjson.dumps([each.value for each in documents]))
    except orjson.JSONEncodeError as error:
        reason = f"The document must contain only JSON values: {error}."
        raise InvalidInput(reason, code="not_json") from None
    items = [
        (item, document, f"[{index}]" if isinstance(value, list) else "")
        for value, document in zip(values, documents, strict=True)
        for index, item in enumerate(value if isinstance(value, list) else [value])
    ]
    check_objects([item for item, _, _ in items])
    return [
        Manifest(definition=item, file=file, document=document, path=path)
        for item, document, path in items
    ]
