"""The published documents as files: what each holds, and writing them all."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import yaml  # a development dependency: nothing that runs in production imports this package
from tests.tools.schemas.asyncapi import SCHEMAS, document
from tests.tools.schemas.jsonschema import schema_of
from tests.tools.schemas.messages import MESSAGES

ASYNCAPI: Final = "asyncapi.yaml"
GENERATED: Final = (
    "# Written by `python -m harebell.dev.schemas`; a test fails when it is out of date.\n"
)
WIDTH: Final = 100


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block; no anchors, so that a diff shows what changed."""

    def ignore_aliases(self, data: Any) -> bool:  # yaml's
        del data
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def documents() -> Mapping[str, Any]:
    """By their paths."""
    schemas = {f"{SCHEMAS}/{message.file}": schema_of(message) for message in MESSAGES}
    return {ASYNCAPI: document(), **schemas}


def write(folder: Path) -> None:
    """Replaces all of them, and removes schemas of messages that are no more."""
    made = documents()
    (folder / SCHEMAS).mkdir(exist_ok=True)
    for stale in {*(folder / SCHEMAS).glob("*.json")} - {folder / path for path in made}:
        stale.unlink()
    for path, value in made.items():
        (folder / path).write_text(_written(path, value), encoding="utf-8")


def _written(path: str, value: Any) -> str:  # JSON
    if path == ASYNCAPI:
        text: str = yaml.dump(
            value, Dumper=_Dumper, sort_keys=False, width=WIDTH, default_flow_style=None
        )
        return GENERATED + text
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE).decode()
