"""The entry point of the `harebell` command."""

import logging
from datetime import UTC, datetime
from typing import Final

from harebell.cli.app import app
from harebell.cli.framework.session import ProcessContext
from harebell.client import Client

# These loggers print tracebacks of errors that the command reports as one line.
SILENCED_LOGGERS: Final = ("aio_pika", "aiormq")


def main() -> None:
    """Run the command line of this process."""
    for name in SILENCED_LOGGERS:
        logging.getLogger(name).addHandler(logging.NullHandler())
    app(
        prog_name="harebell",
        obj=ProcessContext(connect=Client.connect, now=lambda: datetime.now(UTC)),
    )


if __name__ == "__main__":
    main()
