"""The entry point of the `harebell` command."""

import logging
from datetime import UTC, datetime
from typing import Final

from harebell.cli.app import app
from harebell.cli.session import Surroundings
from harebell.client import Harebell

NOISY: Final = ("aio_pika", "aiormq")  # log tracebacks of what is reported in one line anyway


def main() -> None:
    for name in NOISY:
        logging.getLogger(name).addHandler(logging.NullHandler())
    app(
        prog_name="harebell",
        obj=Surroundings(connect=Harebell.connect, now=lambda: datetime.now(UTC)),
    )


if __name__ == "__main__":
    main()
