"""The http target: one request per attempt, to public addresses only, its answer read in bounds."""

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

from aiohttp import (
    ClientConnectorError,
    ClientError,
    ClientHandlerType,
    ClientOSError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    ServerDisconnectedError,
    TCPConnector,
    ThreadedResolver,
)
from aiohttp.abc import AbstractResolver, ResolveResult

from harebell.contract.errors import PrivateAddress, Rejected
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.domain.url_policy import Network, check_url, is_allowed_address
from harebell.executor.targets.attempt import (
    MAX_EXCERPT,
    AttemptContext,
    Outcome,
    error_text,
    excerpt,
)
from harebell.executor.targets.http_request import HttpRequest, redirected, request_of
from harebell.executor.targets.http_response import failure_of, outcome_of

MAX_CONNECTIONS: Final = 128
MAX_REDIRECTS: Final = 5
MAX_READ: Final = 64 * 1024  # bytes of a response's body, then the connection is closed
DNS_KEPT: Final = 10  # seconds that a name's checked addresses are used again
NO_TIMEOUT: Final = ClientTimeout(total=None)  # `perform` has the attempt's
EXPLANATION_WAIT: Final = 1.0  # seconds for the body of an answer whose status is the outcome


class ConnectionLost(Exception):
    """The connection ended before the answer. Whether the call arrived is unknown."""


class HttpTargets:
    """Used as a context manager. `networks` are the ones allowed besides public addresses."""

    def __init__(
        self,
        networks: Sequence[Network],
        *,
        resolver: AbstractResolver | None = None,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._networks = networks
        self._resolver = resolver
        self._connections = connections
        self._session: ClientSession

    async def __aenter__(self) -> Self:
        self._session = ClientSession(
            connector=TCPConnector(
                resolver=CheckedResolver(self._resolver or ThreadedResolver(), self._networks),
                limit=self._connections,
                force_close=True,  # a kept connection may just be closing, which costs an attempt
                ttl_dns_cache=DNS_KEPT,
            ),
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),  # no body, no type
            cookie_jar=DummyCookieJar(),
            middlewares=(_send_once,),
            timeout=NO_TIMEOUT,
            trust_env=False,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()

    async def call(self, call: HttpCall, attempt: AttemptContext) -> Outcome:
        try:
            return await self._exchange(request_of(call, attempt), follow=call.follow_redirects)
        except Rejected as error:
            return Failure(error.code, excerpt(error.reason), retryable=False)
        except ConnectionLost as error:
            return Failure("connection_lost", excerpt(str(error)))
        except ClientError as error:
            return failure_of(error)
        except ValueError as error:  # as aiohttp refuses what it cannot write on the wire
            return Failure("invalid_request", error_text(error), retryable=False)

    async def _exchange(self, request: HttpRequest, *, follow: bool) -> Outcome:
        for _ in range(1 + MAX_REDIRECTS):
            check_url(request.url, self._networks)
            async with self._session.request(
                request.method,
                request.url,
                headers=request.all_headers(),
                data=request.body,
                allow_redirects=False,
            ) as response:
                location = response.headers.get("Location") if follow else None
                following = redirected(request, response.status, location)
                if following is None:
                    return outcome_of(response.status, response.headers, await _told(response))
            request = following
        return Failure("too_many_redirects", f"over {MAX_REDIRECTS}", retryable=False)


async def _send_once(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Keeps aiohttp from sending a GET, PUT or DELETE again by itself when the connection ends.

    It does so for `ClientOSError` and `ServerDisconnectedError`: an attempt on the record would
    be two calls to the target.
    """
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise ConnectionLost(error_text(error)) from error


async def _told(response: ClientResponse) -> str | None:
    """A success is one when it has ended; a failure's body only explains it."""
    if response.ok:
        return await _body(response)
    try:
        async with asyncio.timeout(EXPLANATION_WAIT):
            return await _body(response)
    except (TimeoutError, ClientError):
        return None


async def _body(response: ClientResponse) -> str | None:
    """The beginning of the body as text; None if there is none, or it is compressed."""
    kept = bytearray()
    read = 0
    async for chunk in response.content.iter_any():
        read += len(chunk)
        kept += chunk[: MAX_EXCERPT - len(kept)]
        if read >= MAX_READ:
            break
    if not kept or "Content-Encoding" in response.headers:
        return None
    return excerpt(kept.decode(errors="replace"))


class CheckedResolver(AbstractResolver):
    def __init__(self, inner: AbstractResolver, networks: Sequence[Network]) -> None:
        self._inner = inner
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises `PrivateAddress` if any address is refused: one that is not would be luck.

        The address stays unsaid, or a schedule could be used to read our internal DNS.
        """
        results = await self._inner.resolve(host, port, family)
        if not all(
            is_allowed_address(ip_address(result["host"]), self._networks) for result in results
        ):
            raise PrivateAddress(f"{host} is not at a public address", field="url")
        return results

    async def close(self) -> None:
        await self._inner.close()
