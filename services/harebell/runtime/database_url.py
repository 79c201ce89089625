"""The URL of PostgreSQL, which this one function reads for pools, for SQLAlchemy and the migration.

The parameters of TLS have the meaning of libpq, but off loopback the default is `verify-full`.
"""

import ssl
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeVar, assert_never
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from harebell.connection.tls import TlsServer, client_context, is_loopback
from harebell.contract.errors import InvalidInput

SCHEMES: Final = ("postgresql", "postgres", "postgresql+asyncpg")
DEFAULT_PORT: Final = 5432
FIELD: Final = "database_url"

Value = TypeVar("Value", bound=StrEnum)


class SslMode(StrEnum):
    """The values of `sslmode`, from the weakest to the strongest."""

    DISABLE = "disable"
    ALLOW = "allow"
    PREFER = "prefer"
    REQUIRE = "require"
    VERIFY_CA = "verify-ca"
    VERIFY_FULL = "verify-full"


class SessionTarget(StrEnum):
    """The values of `target_session_attrs`: which server of several may be used."""

    ANY = "any"
    PRIMARY = "primary"
    READ_WRITE = "read-write"  # the same as `primary`
    STANDBY = "standby"
    READ_ONLY = "read-only"  # the same as `standby`
    PREFER_STANDBY = "prefer-standby"


class Pooler(StrEnum):
    """The values of `pooler`: the mode of a connection pooler such as pgbouncer."""

    NONE = "none"
    TRANSACTION = "transaction"


SSL_MODE: Final = "sslmode"
SSL_FILES: Final = ("sslrootcert", "sslcert", "sslkey")
SESSION_TARGET: Final = "target_session_attrs"
POOLER: Final = "pooler"
PARAMETERS: Final = (SSL_MODE, *SSL_FILES, "host", SESSION_TARGET, POOLER)
MAX_HOSTS: Final = 8  # of one URL, each of which may take the time of a connection
# asyncpg itself tries these modes with and without TLS, and verifies no certificate.
_OPPORTUNISTIC: Final = (SslMode.DISABLE, SslMode.ALLOW, SslMode.PREFER)


@dataclass(frozen=True, kw_only=True)
class DatabaseUrl:
    """The address of a database, and the way to verify its server."""

    dsn: str  # for asyncpg, without the parameters that are fields
    hosts: tuple[str, ...]
    ports: tuple[int, ...]
    sslmode: SslMode
    session_target: SessionTarget = SessionTarget.ANY
    pooler: Pooler = Pooler.NONE
    sslrootcert: str | None = None
    sslcert: str | None = None
    sslkey: str | None = None

    @property
    def servers(self) -> tuple[TlsServer, ...]:
        """The servers, of which a connection uses the first that fits `session_targets`."""
        return tuple(
            TlsServer(
                title="database",
                host=host,
                port=port,
                cafile=self.sslrootcert,
                certfile=self.sslcert,
                keyfile=self.sslkey,
                requests_tls=True,
            )
            for host, port in zip(self.hosts, self.ports, strict=True)
        )

    @property
    def session_targets(self) -> tuple[SessionTarget, ...]:
        """The kinds of servers to search for, one after the other.

        A session of the audit is read-only by its own setting, so `read-write` means the primary.
        """
        match self.session_target:
            case SessionTarget.PREFER_STANDBY:
                return SessionTarget.STANDBY, SessionTarget.ANY
            case SessionTarget.READ_WRITE | SessionTarget.PRIMARY:
                return (SessionTarget.PRIMARY,)
            case SessionTarget.READ_ONLY | SessionTarget.STANDBY:
                return (SessionTarget.STANDBY,)
            case SessionTarget.ANY:
                return (SessionTarget.ANY,)
            case _:
                assert_never(self.session_target)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths of the files that the URL names."""
        return tuple(filter(None, (self.sslrootcert, self.sslcert, self.sslkey)))

    def weaknesses(self) -> list[str]:
        """Return the weaknesses of the link, each as a sentence."""
        remote = [host for host in self.hosts if not is_loopback(host)]
        if not remote or self.sslmode is SslMode.VERIFY_FULL:
            return []
        where = ", ".join(remote)
        return [f"The link to the database at {where} has sslmode={self.sslmode}: use verify-full."]

    def ssl(self) -> ssl.SSLContext | str:
        """Return the argument `ssl` of asyncpg. Each call reads the files again.

        As in libpq, `require` verifies the authority if the URL names it.
        Raise `OSError` for an unusable file.
        """
        if self.sslmode in _OPPORTUNISTIC:
            return str(self.sslmode)
        context = client_context(self.servers[0])
        context.check_hostname = self.sslmode is SslMode.VERIFY_FULL
        if self.sslmode is SslMode.REQUIRE and not self.sslrootcert:
            context.verify_mode = ssl.CERT_NONE
        return context


def read_database_url(url: str) -> DatabaseUrl:
    """Return the parts of the URL of a database.

    Raise `InvalidInput` for another form. The reason omits the URL, which may contain a password.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # an IPv6 address beside other hosts, which needs a name instead
        parts = urlsplit("")
    if parts.scheme not in SCHEMES:
        reason = "The database URL must have the form postgresql://user:password@host:5432/name."
        raise InvalidInput(reason, field=FIELD)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    query = dict(pairs)
    _check_parameters([name for name, _ in pairs], query)
    hosts, ports = _addresses(parts.netloc.rpartition("@")[2], query.get("host"))
    default = SslMode.PREFER if all(map(is_loopback, hosts)) else SslMode.VERIFY_FULL
    mode = _one_of(SslMode, SSL_MODE, query.pop(SSL_MODE, default))
    # A standby accepts a login too, and then rejects each statement that writes.
    usual = SessionTarget.ANY if len(hosts) == 1 else SessionTarget.PRIMARY
    target = _one_of(SessionTarget, SESSION_TARGET, query.pop(SESSION_TARGET, usual))
    pooler = _one_of(Pooler, POOLER, query.pop(POOLER, Pooler.NONE))
    dsn = urlunsplit(parts._replace(scheme="postgresql", query=urlencode(query)))
    files = {name: query[name] for name in SSL_FILES if name in query}
    return DatabaseUrl(
        dsn=dsn,
        hosts=hosts,
        ports=ports,
        sslmode=mode,
        session_target=target,
        pooler=pooler,
        **files,
    )


def _check_parameters(names: list[str], query: dict[str, str]) -> None:
    for name in names:
        if name not in PARAMETERS:
            known = ", ".join(PARAMETERS)
            reason = f"The database URL must not have the parameter {name!r}; it may have {known}."
            raise InvalidInput(reason, field=FIELD)
        if names.count(name) > 1 or not query[name]:
            reason = f"The parameter {name} of the database URL must have exactly one value."
            raise InvalidInput(reason, field=FIELD)
    if ("sslcert" in query) != ("sslkey" in query):
        reason = "The database URL must have both parameters sslcert and sslkey, or neither."
        raise InvalidInput(reason, field=FIELD)


def _one_of(values: type[Value], name: str, text: str) -> Value:
    try:
        return values(text)
    except ValueError:
        known = ", ".join(values)
        reason = f"The parameter {name} of the database URL must be one of {known}, not {text!r}."
        raise InvalidInput(reason, field=FIELD) from None


def _addresses(netloc: str, host: str | None) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the hosts and the ports of `a:5432,b:5432`. The parameter `host` may replace them."""
    hosts, ports = [], []
    for address in (netloc or host or "").split(","):
        name, _, port = address.rpartition(":") if _has_port(address) else (address, "", "")
        hosts.append(name.strip("[]"))
        if port and not port.isdecimal():
            reason = "A port of the database URL must be a number."
            raise InvalidInput(reason, field=FIELD)
        ports.append(int(port or DEFAULT_PORT))
    if len(hosts) > MAX_HOSTS or (len(hosts) > 1 and not all(hosts)):
        reason = f"The database URL must name at most {MAX_HOSTS} hosts, and each must have a name."
        raise InvalidInput(reason, field=FIELD)
    return tuple(hosts), tuple(ports)


def _has_port(address: str) -> bool:
    return ":" in address.rpartition("]")[2]
