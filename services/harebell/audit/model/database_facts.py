"""Facts about a database that the doctor judges: settings, sessions, schema and snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseServer:
    """The server, its settings for a new session, and the settings of single roles.

    `role_settings` has the value by role and name. The role is empty for all roles.
    """

    release: int  # such as 150004
    is_standby: bool
    database: str
    settings: Mapping[str, str]
    role_settings: Mapping[tuple[str, str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSessions:
    """The sessions of the server against its bound, and the number of service instances."""

    max_connections: int
    reserved: int  # for superusers and other roles
    used: int
    instances: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """The recorded migration, and the known migrations in their order.

    `is_readable` is false if this role may not read the record. `recorded` is None without one.
    """

    is_readable: bool
    recorded: str | None
    known: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldSnapshot:
    """A snapshot that two readings show. `age` is that of its transaction [s], if it is known."""

    kind: str
    pid: int | None
    application_name: str
    username: str
    state: str | None
    age: float | None
    transactions: int
