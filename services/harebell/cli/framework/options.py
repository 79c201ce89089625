"""Options that several commands share."""

from typing import Annotated, Final

import typer

LIMIT: Final = 50  # rows of a list, unless told otherwise

Limit = Annotated[int, typer.Option("--limit", min=1, help="Rows at most.")]
State = Annotated[str | None, typer.Option("--state", help="Only those in this state.")]
Note = Annotated[str | None, typer.Option("--note", help="Why; kept on the record.")]
RequestId = Annotated[
    str | None, typer.Option("--request-id", help="Repeat it, and get the first answer again.")
]
