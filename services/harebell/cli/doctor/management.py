"""The management API of RabbitMQ, with the login of the AMQP URL or of its own URL."""

import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import orjson
from yarl import URL

from harebell.contract.errors import BrokerUnavailable, InvalidInput, NotAllowed

FIELD: Final = "management_url"
CA_PARAMETER: Final = "cafile"  # as in the AMQP URL
REQUEST_TIMEOUT: Final = 8.0  # seconds; below the time limit of a check
MAX_RESPONSE: Final = 16 * 1024 * 1024  # bytes
PAGE_SIZE: Final = 500  # connections in one response
MAX_PAGES: Final = 20
_REFUSED: Final = (401, 403)


def parse_management_url(text: str, amqp_url: URL) -> URL:
    """Return the URL with a login, which is that of `amqp_url` by default.

    Raise `InvalidInput` for another text. The reason omits the text, which may have a password.
    """
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.scheme not in {"http", "https"} or not url.host:
        reason = "The URL of the management API must have the form https://host:15671/."
        raise InvalidInput(reason, field=FIELD)
    if CA_PARAMETER in url.query and url.scheme != "https":
        reason = f"The parameter {CA_PARAMETER} of the management API needs the scheme https."
        raise InvalidInput(reason, field=FIELD)
    if url.user is None:
        url = url.with_user(amqp_url.user or "guest").with_password(amqp_url.password or "guest")
    return url


def virtual_host(amqp_url: URL) -> str:
    """Return the name of the virtual host of an AMQP URL."""
    return amqp_url.path.removeprefix("/") or "/"


class ManagementApi:
    """An open session of the management API."""

    def __init__(self, url: URL, session: aiohttp.ClientSession) -> None:
        self._url = url.with_user(None).with_query(None)
        self._session = session

    @classmethod
    @asynccontextmanager
    async def open(cls, url: URL) -> AsyncIterator["ManagementApi"]:
        """Yield a session. Raise `InvalidInput` for an unreadable file of the authority."""
        cafile = url.query.get(CA_PARAMETER)
        try:
            context: ssl.SSLContext | bool = (
                True if cafile is None else ssl.create_default_context(cafile=cafile)
            )
        except (OSError, ssl.SSLError) as error:
            reason = f"The file {cafile} must contain certificates of an authority: {error}."
            raise InvalidInput(reason, field=FIELD) from None
        login = b64encode(f"{url.user}:{url.password or ''}".encode()).decode()
        async with aiohttp.ClientSession(
            headers={"Authorization": f"Basic {login}"},
            connector=aiohttp.TCPConnector(ssl=context),
            timeout=aiohttp.ClientTimeout(total=REQUEST_TIMEOUT),
        ) as session:
            yield cls(url, session)

    async def get(self, *path: str, **query: str | int) -> Any:  # noqa: ANN401  # of the API
        """Return the JSON of a path. Raise `NotAllowed` or `BrokerUnavailable`."""
        place = "/".join(quote(each, safe="") for each in path)
        url = URL(f"{str(self._url).rstrip('/')}/api/{place}", encoded=True).with_query(query)
        try:
            async with self._session.get(url, allow_redirects=False) as response:
                if response.status in _REFUSED:
                    reason = f"The management API refuses /api/{place} to this login."
                    raise NotAllowed(reason)
                if response.status != HTTPStatus.OK:
                    reason = f"The management API answers /api/{place} with {response.status}."
                    raise BrokerUnavailable(reason)
                body = await response.content.read(MAX_RESPONSE)
                while chunk := await response.content.read(MAX_RESPONSE):
                    body += chunk
                    if len(body) > MAX_RESPONSE:
                        raise BrokerUnavailable(f"The response of /api/{place} is too large.")
                return orjson.loads(body)
        except (aiohttp.ClientError, OSError, orjson.JSONDecodeError) as error:
            reason = f"The management API did not answer: {str(error) or type(error).__name__}."
            raise BrokerUnavailable(reason) from None

    async def connections(self) -> list[dict[str, Any]]:
        """Return the user, the virtual host and the client properties of each connection.

        Read at most `MAX_PAGES` pages.
        """
        found: list[dict[str, Any]] = []
        for page in range(1, MAX_PAGES + 1):
            answer = await self.get(
                "connections",
                page=page,
                page_size=PAGE_SIZE,
                columns="vhost,user,client_properties",
            )
            found += answer["items"]
            if page >= answer["page_count"]:
                break
        return found
