"""A schedule of a file, and the places of its fields."""

import re
from dataclasses import dataclass
from typing import Any

from harebell.contract.redaction import hides_input
from harebell.runtime.yaml_document import YamlDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A schedule of a file. `path` is its place in the document: empty or an index as `[3]`."""

    definition: dict[str, Any]
    file: str
    document: YamlDocument
    path: str

    def place_of(self, field: str | None = None) -> str:
        """Return the file and the line of a field, and the line itself if it has no secret."""
        path = f"{self.path}.{field}" if self.path and field else self.path or field or ""
        line = self.document.line_of(path)
        if line is None:
            return self.file
        text = self.document.written(line) if field else None
        place = f"{self.file}, line {line}"
        is_hidden = text is None or hides_input(re.split(r"[.\[\]]+", path), text)
        return place if is_hidden else f"{place}: {text}"
