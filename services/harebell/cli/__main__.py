"""The entry point of the `harebell` command."""

import logging
from datetime import UTC, datetime
from typing import Final

from harebell.cli.app import app
from harebell.cli.framework.session import ProcessContext
from harebell.client import Client

NOISY: Final = ("aio_pika", "aiormq")  # log tracebacks of what is reported in one line anyway


def main() -> None:
    for name in NOISY:
        logging.getLogger(name).addHandler(logging.NullHandler())
    app(
        prog_name="harebell",
        obj=ProcessContext(connect=Client.connect, now=lambda: datetime.now(UTC)),
    )


if __name__ == "__main__":
    main()
