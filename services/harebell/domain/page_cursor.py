"""Where a page of a list ends and the next one goes on: opaque to users, checked on return."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from harebell.contract.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class PageCursor:
    """The last row of a page, by its instant and, among those of one instant, by its id."""

    at: datetime
    id: UUID

    def __str__(self) -> str:
        return f"{self.at.isoformat()}/{self.id}"

    @classmethod
    def parse(cls, text: str) -> "PageCursor":
        at, _, id_ = text.partition("/")
        try:
            cursor = cls(datetime.fromisoformat(at), UUID(id_))
        except ValueError:
            cursor = None
        if cursor is None or cursor.at.tzinfo is None:
            raise InvalidInput("is not the `next` of a page", field="after", code="invalid_cursor")
        return cursor
