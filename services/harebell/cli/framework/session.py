"""The session of one command: its global options, the clock, the output and the connection."""

import logging
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, Self

from harebell.cli.framework.options import GlobalOptions
from harebell.cli.framework.output import Output
from harebell.cli.framework.process import ProcessContext
from harebell.client import Client
from harebell.contract.errors import InvalidInput

CLIENT_NAME: Final = "harebell-cli"
# These loggers print tracebacks of errors that the command reports as one line.
SILENCED_LOGGERS: Final = ("aio_pika", "aiormq")


@dataclass(frozen=True, slots=True)
class Session:
    """One command: the global options in force, and the facilities of the process."""

    options: GlobalOptions
    process: ProcessContext

    @classmethod
    def create(cls, process: ProcessContext, overrides: Mapping[str, Any]) -> Self:
        """Return a session. An option after the name of the command overrides one before it."""
        for name in SILENCED_LOGGERS:
            logging.getLogger(name).addHandler(logging.NullHandler())
        given = {name: value for name, value in overrides.items() if value is not None}
        return cls(replace(process.options, **given), process)

    @property
    def output(self) -> Output:
        """The output in the format of `--output`."""
        return Output(self.options.output)

    @property
    def amqp_url(self) -> str:
        """The URL of the broker. Raises `InvalidInput` without a URL."""
        if not self.options.amqp_url:
            raise InvalidInput(
                "The command needs a broker: set HAREBELL_AMQP_URL or pass --amqp-url.",
                code="no_amqp_url",
            )
        return self.options.amqp_url

    def now(self) -> datetime:
        """Return the current time."""
        return self.process.now()

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """Return the context in which a client is connected to the broker."""
        connect = self.process.connect or Client.connect
        return connect(
            self.amqp_url,
            tenant=self.options.tenant,
            timeout=self.options.timeout,
            name=CLIENT_NAME,
        )
