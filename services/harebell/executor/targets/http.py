"""The HTTP target: one request per attempt, to permitted addresses, with a bounded response."""

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
    TargetOutcome,
    error_text,
    excerpt,
)
from harebell.executor.targets.http_request import HttpRequest, redirect_of, request_of
from harebell.executor.targets.http_response import failure_of, outcome_of

MAX_CONNECTIONS: Final = 128
MAX_REDIRECTS: Final = 5
MAX_BODY_BYTES: Final = 64 * 1024  # of a response; then the connection is closed
DNS_CACHE_SECONDS: Final = 10  # for which the checked addresses of a name are used again
NO_TIMEOUT: Final = ClientTimeout(total=None)  # `call_target` applies the timeout of the attempt
ERROR_BODY_TIMEOUT: Final = 1.0  # seconds for the body of a failed response


class ConnectionLost(Exception):
    """A connection that ended before the response. The request may have arrived."""


class HttpTargets:
    """The HTTP client, as a context manager.

    `networks` are the private networks that HTTP targets may reach.
    """

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
                force_close=True,  # the server may just close a kept connection; an attempt is lost
                ttl_dns_cache=DNS_CACHE_SECONDS,
            ),
            auto_decompress=False,
            skip_auto_headers=("Content-Type",),  # a request without a body has no content type
            cookie_jar=DummyCookieJar(),
            middlewares=(_prevent_resend,),
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

    async def call(self, call: HttpCall, attempt: AttemptContext) -> TargetOutcome:
        """Send the request and return the outcome of its response or of its error."""
        try:
            return await self._exchange(request_of(call, attempt), follow=call.follow_redirects)
        except Rejected as error:
            return Failure(error.code, excerpt(error.reason), retryable=False)
        except ConnectionLost as error:
            return Failure("connection_lost", excerpt(str(error)))
        except ClientError as error:
            return failure_of(error)
        except ValueError as error:  # aiohttp cannot write the request
            return Failure("invalid_request", error_text(error), retryable=False)

    async def _exchange(self, request: HttpRequest, *, follow: bool) -> TargetOutcome:
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
                next_request = redirect_of(request, response.status, location)
                if next_request is None:
                    return outcome_of(
                        response.status, response.headers, await _body_excerpt(response)
                    )
            request = next_request
        reason = f"The target sent more than {MAX_REDIRECTS} redirects."
        return Failure("too_many_redirects", reason, retryable=False)


async def _prevent_resend(request: ClientRequest, handler: ClientHandlerType) -> ClientResponse:
    """Raise `ConnectionLost` where aiohttp would send the request again.

    aiohttp repeats a GET, PUT or DELETE after `ClientOSError` and `ServerDisconnectedError`. One
    recorded attempt would then be two calls of the target.
    """
    try:
        return await handler(request)
    except ClientConnectorError:
        raise
    except (ClientOSError, ServerDisconnectedError) as error:
        raise ConnectionLost(error_text(error)) from error


async def _body_excerpt(response: ClientResponse) -> str | None:
    """Return the excerpt of the body.

    A successful attempt includes the whole body. The body of a failed response is only an
    explanation, so it has ERROR_BODY_TIMEOUT.
    """
    if response.ok:
        return await _read_excerpt(response)
    try:
        async with asyncio.timeout(ERROR_BODY_TIMEOUT):
            return await _read_excerpt(response)
    except (TimeoutError, ClientError):
        return None


async def _read_excerpt(response: ClientResponse) -> str | None:
    """Return the beginning of the body as text, or None if it is empty or compressed."""
    beginning = bytearray()
    read = 0
    async for chunk in response.content.iter_any():
        read += len(chunk)
        beginning += chunk[: MAX_EXCERPT - len(beginning)]
        if read >= MAX_BODY_BYTES:
            break
    if not beginning or "Content-Encoding" in response.headers:
        return None
    return excerpt(beginning.decode(errors="replace"))


class CheckedResolver(AbstractResolver):
    """A resolver that permits only public addresses and the allowed networks."""

    def __init__(self, inner: AbstractResolver, networks: Sequence[Network]) -> None:
        self._inner = inner
        self._networks = networks

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve the host. Raise `PrivateAddress` if any of its addresses is not permitted.

        The error does not contain the address, because a schedule could read the internal DNS.
        """
        results = await self._inner.resolve(host, port, family)
        if not all(
            is_allowed_address(ip_address(result["host"]), self._networks) for result in results
        ):
            reason = f"The host {host} must have only public or allowed addresses."
            raise PrivateAddress(reason, field="url")
        return results

    async def close(self) -> None:
        await self._inner.close()
