"""The progress of a running attempt, which a task or a worker reports."""

import json
from typing import Annotated, Any, Final

from pydantic import Field, StringConstraints, field_validator

from harebell.contract.message import StrictMessage, invalid
from harebell.contract.types import CheckedJson, Text

MAX_CHECKPOINT: Final = 4096  # bytes of JSON in ASCII, which must fit into a header
MAX_PROGRESS_MESSAGE: Final = 256  # characters


class Progress(StrictMessage):
    """The progress of an attempt. A report keeps the last value of each field that it omits.

    The next attempt receives the last checkpoint.
    """

    percent: Annotated[float, Field(ge=0, le=100, strict=True)] | None = None
    message: Annotated[Text, StringConstraints(max_length=MAX_PROGRESS_MESSAGE)] | None = None
    checkpoint: CheckedJson | None = None

    @field_validator("checkpoint")
    @classmethod
    def _check_checkpoint(cls, checkpoint: Any) -> Any:  # noqa: ANN401  # JSON is any of its types
        if (size := len(ascii_json(checkpoint))) > MAX_CHECKPOINT:
            reason = f"The checkpoint must have at most {MAX_CHECKPOINT} bytes of JSON, not {size}."
            raise invalid("too_large", reason)
        return checkpoint

    def progress_fields(self) -> dict[str, Any]:
        """Return the fields that have a value, as they are stored."""
        found = {
            "percent": self.percent,
            "message": self.message,
            "checkpoint": self.checkpoint,
        }
        return {name: value for name, value in found.items() if value is not None}


def ascii_json(value: Any) -> str:  # noqa: ANN401  # JSON is any of its types
    """Return JSON that a header can carry. The JSON has no character outside ASCII."""
    return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
