"""The files of the documents: their content and their form."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import yaml
from tests.tools.schemas.asyncapi import SCHEMAS, document
from tests.tools.schemas.jsonschema import schema_of
from tests.tools.schemas.messages import MESSAGES

ASYNCAPI: Final = "asyncapi.yaml"
GENERATED: Final = (
    "# Written by `python -m tests.tools.schemas`. A test compares it with the code.\n"
)
WIDTH: Final = 100


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors, because a diff must show each change where it is."""

    def ignore_aliases(self, data: Any) -> bool:  # of the base class
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def documents() -> Mapping[str, Any]:
    """Return the documents by path."""
    schemas = {f"{SCHEMAS}/{message.file}": schema_of(message) for message in MESSAGES}
    return {ASYNCAPI: document(), **schemas}


def write(folder: Path) -> None:
    """Write every document, and delete the schemas of messages that no longer exist."""
    generated = documents()
    (folder / SCHEMAS).mkdir(exist_ok=True)
    for stale in {*(folder / SCHEMAS).glob("*.json")} - {folder / path for path in generated}:
        stale.unlink()
    for path, value in generated.items():
        (folder / path).write_text(_file_text(path, value), encoding="utf-8")


def _file_text(path: str, value: Any) -> str:
    if path == ASYNCAPI:
        text: str = yaml.dump(
            value, Dumper=_Dumper, sort_keys=False, width=WIDTH, default_flow_style=None
        )
        return GENERATED + text
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
