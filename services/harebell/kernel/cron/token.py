"""A piece of a cron expression that knows where it stands, so that a refusal can point at it."""

from collections.abc import Iterator
from dataclasses import dataclass

from harebell.contract.errors import InvalidCron


@dataclass(frozen=True, slots=True)
class Token:
    text: str
    at: int  # characters from the start of the expression
    expression: str

    def fault(self, reason: str) -> InvalidCron:
        return InvalidCron(self.expression, reason, position=self.at)

    def cut(self, start: int, end: int | None = None) -> "Token":
        return Token(self.text[start:end], self.at + start, self.expression)

    def split(self, separator: str) -> Iterator["Token"]:
        start = 0
        for text in self.text.split(separator):
            yield Token(text, self.at + start, self.expression)
            start += len(text) + len(separator)

    def divide(self, separator: str) -> tuple["Token", "Token | None"]:
        """Split at the first separator; the second half is None if there is no separator."""
        at = self.text.find(separator)
        if at < 0:
            return self, None
        return self.cut(0, at), self.cut(at + len(separator))
