"""The links to the broker and to the database: faults of certificates and weak settings."""

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from harebell.bootstrap.health import Health
from harebell.connection.amqp import parse_amqp_urls
from harebell.connection.tls import BAD_CERTIFICATE, broker_weaknesses
from harebell.contract.errors import BrokerUnavailable
from harebell.runtime.database_url import read_database_url
from harebell.runtime.settings import ServiceSettings

log = structlog.get_logger()


class LinkFaults:
    """The certificates that prevented the last connection of each kind, for `/readyz`."""

    def __init__(self) -> None:
        self.broker: str | None = None
        self.database: str | None = None

    def set_database(self, fault: str | None) -> None:
        """Record the result of a connection to the database. None: it succeeded."""
        self.database = fault

    @contextmanager
    def observe_broker(self) -> Iterator[None]:
        """Record the result of a connection to the broker."""
        try:
            yield
        except BrokerUnavailable as error:
            self.broker = error.reason if error.code == BAD_CERTIFICATE else None
            raise
        self.broker = None


def show_links(health: Health, settings: ServiceSettings, faults: LinkFaults) -> None:
    """Show faults and weaknesses of the links in `/readyz`, and log the weaknesses once."""
    health.explain("broker", lambda: faults.broker)
    health.explain("database", lambda: faults.database)
    urls = parse_amqp_urls(settings.amqp_url.get_secret_value())
    database = read_database_url(settings.database_url.get_secret_value())
    weak_links = {"broker link": broker_weaknesses(urls), "database link": database.weaknesses()}
    for name, weaknesses in weak_links.items():
        if weaknesses:
            text = " ".join(weaknesses)
            log.warning("link is weak", link=name, reason=text)
            health.warn(name, lambda text=text: text)  # type: ignore[misc]  # mypy infers no default
