"""The HTTP target: one request per attempt, to permitted addresses, with a bounded response."""

import asyncio
import errno
import socket
import ssl
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from ipaddress import ip_address
from types import TracebackType
from typing import Final, Self

from aiohttp import (
    AddrInfoType,
    AsyncResolver,
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
)
from aiohttp.abc import AbstractResolver

from harebell.contract.errors import NotAllowed, Rejected, SecretMissing
from harebell.contract.target import HttpCall
from harebell.domain.retry import Failure
from harebell.domain.target_check import check_address, check_request_url
from harebell.domain.tenant_policy import PolicySource, TenantPolicy
from harebell.domain.url_policy import Egress
from harebell.executor.targets.attempt import (
    MAX_EXCERPT,
    AttemptContext,
    TargetOutcome,
    error_text,
    excerpt,
    refused,
)
from harebell.executor.targets.client_spans import describe_response, start_request
from harebell.executor.targets.http_request import (
    HttpRequest,
    RedirectLosesBody,
    redirect_of,
    request_of,
)
from harebell.executor.targets.http_response import failure_of, outcome_of
from harebell.executor.targets.name_resolver import (
    DNS_TRIES,
    DNS_TRY,
    TENANT,
    BoundedResolver,
    CheckedResolver,
)
from harebell.executor.targets.status_line import SEEN, SeenResponse, StatusLineConnector
from harebell.executor.targets.tenant_tls import TlsContexts
from harebell.runtime.secret_files import SecretFiles
from harebell.runtime.spans import ActiveSpan

MAX_CONNECTIONS: Final = 128
MAX_REDIRECTS: Final = 5
MAX_HEADER_BYTES: Final = 64 * 1024  # of each header of a response, and of its status line
MAX_BODY_BYTES: Final = 64 * 1024  # of a response; then the connection is closed
DNS_CACHE_SECONDS: Final = 10  # for which the checked addresses of a name are used again
NO_TIMEOUT: Final = ClientTimeout(total=None)  # `call_target` applies the timeout of the attempt
ERROR_BODY_TIMEOUT: Final = 1.0  # seconds for the body of a failed response


class ConnectionLost(Exception):
    """A connection that ended before the response. The request may have arrived."""


class HttpTargets:
    """The HTTP client, as a context manager.

    `egress` contains the networks of the installation, which no tenant policy extends. With a
    proxy, each request uses the proxy, which then resolves and checks the names of hosts.
    """

    def __init__(
        self,
        egress: Egress,
        policies: PolicySource,
        *,
        proxy: str | None = None,
        tls: TlsContexts | None = None,
        resolver: AbstractResolver | None = None,
        connections: int = MAX_CONNECTIONS,
    ) -> None:
        self._egress = egress
        self._policies = policies
        self._proxy = proxy
        self._tls = tls or TlsContexts(SecretFiles(None))
        self._resolver = resolver
        self._connections = connections
        self._session: ClientSession
        self._names: BoundedResolver

    async def __aenter__(self) -> Self:
        inner = self._resolver or AsyncResolver(timeout=DNS_TRY, tries=DNS_TRIES)
        resolver = self._names = BoundedResolver(inner)
        is_direct = self._proxy is None
        self._session = ClientSession(
            connector=StatusLineConnector(
                resolver=CheckedResolver(resolver, self._egress) if is_direct else resolver,
                socket_factory=_open_checked_socket if is_direct else None,
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
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._session.close()
        await self._names.close()

    async def call(self, call: HttpCall, attempt: AttemptContext, seconds: float) -> TargetOutcome:
        """Send the request and return the outcome of its response or of its error.

        The status line decides. After one, neither an invalid rest of the response nor its end nor
        the timeout makes another call of a target that has done the work.
        Raise `TimeoutError` without a status line after `seconds`.
        """
        tenant = attempt.ticket.run_spec.tenant
        check = AddressCheck(self._policies.current.of(tenant), self._egress)
        tenant_token = TENANT.set(tenant)
        token = _ADDRESS_CHECK.set(check if check.policy.restricts_http else None)
        seen = SeenResponse()
        seen_token = SEEN.set(seen)
        try:
            tls = check.policy.tls
            async with asyncio.timeout(seconds):
                return await self._exchange(
                    request_of(call, attempt),
                    check.policy,
                    attempt,
                    follow=call.follow_redirects,
                    context=None if tls is None else self._tls.of(tenant, tls),
                )
        except (TimeoutError, ConnectionLost, ClientError) as error:
            return _outcome_of_error(error, seen, check)
        except RedirectLosesBody as error:
            return Failure("redirect_loses_body", excerpt(str(error)), retryable=False)
        except SecretMissing as error:
            return Failure(error.code, excerpt(error.reason))
        except Rejected as error:
            return refused(naming_url(error))
        except ValueError as error:  # aiohttp cannot write the request
            return Failure("invalid_request", error_text(error), retryable=False)
        finally:
            SEEN.reset(seen_token)
            _ADDRESS_CHECK.reset(token)
            TENANT.reset(tenant_token)

    async def _exchange(
        self,
        request: HttpRequest,
        policy: TenantPolicy,
        attempt: AttemptContext,
        *,
        follow: bool,
        context: ssl.SSLContext | None,
    ) -> TargetOutcome:
        for redirects in range(1 + MAX_REDIRECTS):
            check_request_url(request.url, policy, self._egress)
            span = start_request(request, attempt.trace, redirects)
            try:
                result = await self._send(
                    request, span, started_at=attempt.started_at, follow=follow, context=context
                )
            except BaseException as error:
                if span is not None:
                    span.fail(type(error).__name__)
                raise
            finally:
                if span is not None:
                    span.end()
            if not isinstance(result, HttpRequest):
                return result
            request = result
        reason = f"The target sent more than {MAX_REDIRECTS} redirects."
        return Failure("too_many_redirects", reason, retryable=False)

    async def _send(
        self,
        request: HttpRequest,
        span: ActiveSpan | None,
        *,
        started_at: datetime,
        follow: bool,
        context: ssl.SSLContext | None,
    ) -> TargetOutcome | HttpRequest:
        """Send one request. Return the outcome of its response, or the redirected request."""
        headers = request.all_headers()
        if span is not None:
            headers.update(span.context.headers())
        async with self._session.request(
            request.method,
            request.url,
            headers=headers,
            data=request.body,
            allow_redirects=False,
            proxy=self._proxy,
            ssl=True if context is None else context,
        ) as response:
            if span is not None:
                describe_response(span, response.status)
            location = response.headers.get("Location")
            if follow and (redirected := redirect_of(request, response.status, location)):
                return redirected
            body = await _body_excerpt(response)
            return outcome_of(response.status, response.headers, body, now=started_at)


@dataclass(slots=True)
class AddressCheck:
    """The tenant policy of the connections of one attempt, and its first refusal."""

    policy: TenantPolicy
    egress: Egress
    error: NotAllowed | None = None

    def check(self, address: str, port: int) -> None:
        """Raise `PermissionError` for an address that the policy forbids, and keep the reason."""
        try:
            check_address(ip_address(address), port, self.policy, egress=self.egress)
        except NotAllowed as error:
            self.error = error
            raise PermissionError(errno.EACCES, error.reason) from error


# The connector has no parameter for the attempt, and each attempt has its own context.
_ADDRESS_CHECK: Final[ContextVar[AddressCheck | None]] = ContextVar("address_check", default=None)


def _open_checked_socket(info: AddrInfoType) -> socket.socket:
    """Return a socket for an address that the policy of the attempt permits.

    The check is here because the cache of the resolver is the same for all tenants.
    """
    family, kind, protocol, _, address = info
    check = _ADDRESS_CHECK.get()
    if check is not None:
        check.check(str(address[0]), int(address[1]))
    return socket.socket(family, kind, protocol)


def _outcome_of_error(
    error: TimeoutError | ConnectionLost | ClientError, seen: SeenResponse, check: AddressCheck
) -> TargetOutcome:
    """Return the outcome of the status line, or else of the error. Raise a `TimeoutError`."""
    if seen.status is not None:
        return outcome_of(seen.status, {}, None)
    if isinstance(error, ConnectionLost):
        return Failure("connection_lost", excerpt(str(error)))
    if isinstance(error, ClientError):
        return failure_of(error) if check.error is None else refused(naming_url(check.error))
    raise error


def naming_url(error: Rejected) -> Rejected:
    """Return the error with the field of the URL in a definition."""
    error.field = "target.http.url"
    return error


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
