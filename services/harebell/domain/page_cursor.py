"""The cursor of a page: opaque for users, and checked when it returns."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from harebell.contract.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The last row of a page, by its time and its id."""

    at: datetime
    id: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> "PageCursor":
        """Return the cursor of a text. Raise `InvalidInput` for another text."""
        at, _, id_ = text.partition("/")
        try:
            cursor = cls(datetime.fromisoformat(at), UUID(id_))
        except ValueError:
            cursor = None
        if cursor is None or cursor.at.tzinfo is None:
            reason = "The cursor must be the value `next` of the previous page."
            raise InvalidInput(reason, field="after", code="invalid_cursor")
        return cursor
