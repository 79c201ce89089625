"""The verdicts about the database, from the facts that the audit reads. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import date, timedelta
from typing import Final, NamedTuple

from harebell.audit.model.database_facts import (
    DatabaseServer,
    DatabaseSessions,
    OldSnapshot,
    SchemaVersion,
)
from harebell.cli.doctor.checks import Check, failed, passed, skipped, warned
from harebell.runtime.tzdata import fault_of

MIN_RELEASE: Final = 150_000
MAX_SHARE_OF_SESSIONS: Final = 0.9  # of the connections that services may open
MAX_SNAPSHOT_AGE: Final = timedelta(minutes=5)  # as in the alert HarebellSnapshotHeld
MAX_SNAPSHOT_TRANSACTIONS: Final = 100_000  # without a known age; some minutes of a busy ledger
IDLE_TIMEOUT: Final = "idle_in_transaction_session_timeout"
_RELOAD: Final = "SELECT pg_reload_conf();"


class _Rule(NamedTuple):
    """The bad values of a setting, and their effect."""

    bad: frozenset[str]
    effect: str


_RULES: Final[Mapping[str, _Rule]] = {
    "fsync": _Rule(frozenset({"off"}), "a crash of the machine can destroy the database"),
    "full_page_writes": _Rule(
        frozenset({"off"}), "a crash of the machine can leave pages that are half written"
    ),
    "synchronous_commit": _Rule(
        frozenset({"off"}), "a crash can lose runs that Harebell has acknowledged"
    ),
    "autovacuum": _Rule(frozenset({"off"}), "dead rows slow each statement without end"),
    "track_counts": _Rule(frozenset({"off"}), "autovacuum does not work"),
}


def judge_server(server: DatabaseServer) -> Iterator[Check]:
    """Return the verdicts about the release and the role of the server."""
    check = "database release"
    major = server.release // 10_000
    if server.is_standby:
        text = "The server is a standby, in which no service can write."
        yield failed(check, text, "Add target_session_attrs=read-write and the primary to the URL.")
    if server.release < MIN_RELEASE:
        text = f"The database has the release {major}, but Harebell needs 15 or later."
        yield failed(check, text, "Upgrade PostgreSQL to a supported release.")
    elif not server.is_standby:
        yield passed(check, f"The database has the release {major} and accepts writes.")


def judge_settings(server: DatabaseServer) -> Iterator[Check]:
    """Return a verdict for each dangerous setting of the server or of a service role."""
    check = "database settings"
    faults = []
    for name, rule in _RULES.items():
        if server.settings.get(name) in rule.bad:
            value = server.settings[name]
            text = f"The setting {name} is {value}, so {rule.effect}."
            faults.append(failed(check, text, f"ALTER SYSTEM SET {name} = on; {_RELOAD}"))
        for (role, each), value in server.role_settings.items():
            if each == name and role and value in rule.bad:
                text = f"The role {role} has {name} = {value}, so {rule.effect}."
                everywhere = f"ALTER ROLE {role} RESET {name};"
                here = f"ALTER ROLE {role} IN DATABASE {server.database} RESET {name};"
                remedy = f"{everywhere} {here}"
                faults.append(failed(check, text, remedy))
    if server.settings.get(IDLE_TIMEOUT) == "0":
        text = f"The setting {IDLE_TIMEOUT} is 0, so a forgotten transaction may never end."
        remedy = f"ALTER DATABASE {server.database} SET {IDLE_TIMEOUT} = '10min';"
        faults.append(warned(check, text, remedy))
    yield from faults
    if not faults:
        yield passed(check, "Commits are durable, and autovacuum works.")


def judge_sessions(sessions: DatabaseSessions, *, pool_max: int) -> Iterator[Check]:
    """Return the verdict about the connections of the server and the pools of the services."""
    check = "database connections"
    available = sessions.max_connections - sessions.reserved
    possible = sessions.instances * pool_max
    remedy = "Raise max_connections, lower HAREBELL_DATABASE_POOL_MAX, or use pgbouncer."
    if sessions.used > available * MAX_SHARE_OF_SESSIONS:
        text = f"The server has {sessions.used} sessions and accepts {available}."
        yield failed(check, text, remedy)
    elif possible > available:
        text = (
            f"The pools of {sessions.instances} instances may open {possible} connections, "
            f"but the server accepts {available}."
        )
        yield warned(check, text, remedy)
    else:
        text = (
            f"The server accepts {available} connections and has {sessions.used}. "
            f"The pools may open {possible}."
        )
        yield passed(check, text)


def judge_schema(version: SchemaVersion) -> Iterator[Check]:
    """Return the verdict about the migrations of the database."""
    check = "migrations"
    migrate = "Migrate as the owner of the database: python -m harebell.storage."
    newest = version.known[-1]
    if not version.is_readable:
        text = "This role may not read the version of the schema."
        remedy = "Connect as harebell_auditor, or migrate: a migration gives it this right."
        yield skipped(check, text, remedy)
    elif version.recorded is None:
        yield failed(check, "The database has no table of Harebell.", migrate)
    elif version.recorded not in version.known:
        text = f"The database has the migration {version.recorded}, which this version lacks."
        yield warned(check, text, "Use the command and the services of the newer version.")
    elif pending := version.known[version.known.index(version.recorded) + 1 :]:
        text = (
            f"The database has the migration {version.recorded}, but {newest} is the newest "
            f"(pending: {len(pending)})."
        )
        yield failed(check, text, migrate)
    else:
        yield passed(check, f"The database has the newest migration, {newest}.")


def judge_tzdata(version: str | None, today: date) -> Iterator[Check]:
    """Return the verdict about the time zone data that a ticker planned with."""
    check = "time zone data"
    if version is None:
        text = "No ticker has recorded its version, or this login may not read it."
        remedy = "Make the pending migrations, start a ticker, and use the login of the auditor."
        yield skipped(check, text, remedy)
    elif fault := fault_of(version, today):
        remedy = "Update the package tzdata of the services, and start the tickers again."
        yield warned(check, fault, remedy)
    else:
        yield passed(check, f"The tickers plan with the time zone data of {version}.")


def judge_snapshots(
    snapshots: Iterable[OldSnapshot] | None, *, max_age: timedelta = MAX_SNAPSHOT_AGE
) -> Iterator[Check]:
    """Return a warning for each old snapshot, which prevents the cleanup of dead rows.

    `snapshots` is None if the login may not call the function that names them.
    """
    if snapshots is None:
        text = "This login may not read which sessions hold a snapshot."
        remedy = "Make the pending migrations, and use the login of the auditor or of a ticker."
        yield skipped("held snapshots", text, remedy)
        return
    old = [each for each in snapshots if _is_old(each, max_age)]
    for each in old:
        since = (
            f"{each.transactions} transactions ago"
            if each.age is None
            else f"{each.age:.0f} s and {each.transactions} transactions ago"
        )
        text = (
            f"The {_name(each)} holds a snapshot from {since}, so PostgreSQL removes no newer "
            "dead row."
        )
        yield warned("held snapshots", text, _end(each))
    if not old:
        yield passed("held snapshots", "No session holds an old snapshot.")


def _is_old(snapshot: OldSnapshot, max_age: timedelta) -> bool:
    if snapshot.age is None:
        return snapshot.transactions > MAX_SNAPSHOT_TRANSACTIONS
    return snapshot.age > max_age.total_seconds()


def _name(snapshot: OldSnapshot) -> str:
    match snapshot.kind:
        case "prepared":
            return f"prepared transaction {snapshot.application_name} of {snapshot.username}"
        case "slot":
            return f"replication slot {snapshot.application_name}"
        case _:
            state = f", {snapshot.state}" if snapshot.state else ""
            name = snapshot.application_name or "without a name"
            return f"session {name} (pid {snapshot.pid}, user {snapshot.username}{state})"


def _end(snapshot: OldSnapshot) -> str:
    match snapshot.kind:
        case "prepared":
            return f"End it: ROLLBACK PREPARED '{snapshot.application_name}';"
        case "slot":
            name = snapshot.application_name
            return f"Drop it if unused: SELECT pg_drop_replication_slot('{name}');"
        case _:
            return (
                f"End the transaction, or the session: SELECT pg_terminate_backend({snapshot.pid});"
            )
