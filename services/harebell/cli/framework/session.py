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
MAX_URL_LENGTH: Final = 64 * 1024  # characters of a file with the URLs of a cluster
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
        url = self.known_amqp_url()
        if not url:
            raise InvalidInput(
                "The command needs a broker: set HAREBELL_AMQP_URL or HAREBELL_AMQP_URL_FILE, or "
                "pass --amqp-url or --amqp-url-file.",
                code="no_amqp_url",
            )
        return url

    def known_amqp_url(self) -> str | None:
        """Return the URL of the broker, or its file's content, or None without both.

        Raises `InvalidInput` for an unreadable file.
        """
        file = self.options.amqp_url_file
        if self.options.amqp_url or file is None:
            return self.options.amqp_url
        try:
            with file.open() as opened:
                return opened.read(MAX_URL_LENGTH).strip()
        except (OSError, ValueError) as error:  # ValueError: binary content
            kind = error.strerror if isinstance(error, OSError) else "it is not text"
            reason = f"The file {file} with the URL of the broker cannot be read: {kind}."
            raise InvalidInput(reason, code="no_amqp_url") from None

    def now(self) -> datetime:
        """Return the current time."""
        return self.process.now()

    def connect(self) -> AbstractAsyncContextManager[Client]:
        """Return the context in which a client is connected to the broker."""
        connect = self.process.connect or Client.connect
        return connect(
            self.amqp_url,
            tenant=self.options.tenant,
            exchange=self.options.exchange,
            timeout=self.options.timeout,
            name=CLIENT_NAME,
        )
