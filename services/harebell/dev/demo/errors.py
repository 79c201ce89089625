"""What stops the demo before it can judge."""

from harebell.dev.errors import StackError


class DemoFailed(StackError):
    """A step did not work; `said` is what the program that did it wrote."""

    def __init__(self, step: str, said: str = "") -> None:
        super().__init__(f"{step}{f': {said}' if said else ''}")
