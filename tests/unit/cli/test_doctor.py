"""The verdicts of `harebell doctor`, and its checks without a server that answers."""

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine
from yarl import URL

from harebell.audit.model.database_facts import (
    DatabaseServer,
    DatabaseSessions,
    OldSnapshot,
    SchemaVersion,
)
from harebell.cli.doctor import broker, database, links
from harebell.cli.doctor.checks import Check, DoctorResult, run_check
from harebell.cli.doctor.management import parse_management_url
from harebell.contract.errors import BrokerUnavailable, InvalidInput
from harebell.messaging.topology.definitions_file import InstallationOptions, definitions_file
from harebell.messaging.topology.permissions import service_users, tenant_user

pytestmark = pytest.mark.requirement("S61")

OK, WARNING, FAILED, SKIPPED = (
    DoctorResult.OK,
    DoctorResult.WARNING,
    DoctorResult.FAILED,
    DoctorResult.SKIPPED,
)
NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
SERVER: dict[str, Any] = {
    "release": 150004,
    "is_standby": False,
    "database": "harebell",
    "settings": {
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "autovacuum": "on",
        "track_counts": "on",
        "idle_in_transaction_session_timeout": "600000",
    },
    "role_settings": {},
}
OPTIONS = InstallationOptions(vhost="prod", tenants=("acme",), declaring=("acme",))


def verdicts(checks: Iterable[Check]) -> list[DoctorResult]:
    """Return the verdicts. Each fault has a remedy, and no check without a fault has one."""
    found = list(checks)
    assert all((each.remedy is None) == (each.result is OK) for each in found)
    return [each.result for each in found]


def server(**changes: Any) -> DatabaseServer:
    return DatabaseServer(**(SERVER | changes))


def node(**changes: Any) -> dict[str, Any]:
    healthy = {
        "name": "rabbit@a",
        "running": True,
        "mem_alarm": False,
        "disk_free_alarm": False,
        "partitions": [],
        "fd_used": 10,
        "fd_total": 100,
        "enabled_plugins": ["rabbitmq_management", "rabbitmq_prometheus"],
    }
    return healthy | changes


@pytest.mark.parametrize(
    ("versions", "verdict"),
    [
        (("3.10.8",), OK),
        (("4.3.0",), OK),
        (("3.9.29",), FAILED),
        (("3.10.8", "3.9.29"), FAILED),
        (("4.2.1", "4.3.0"), WARNING),
    ],
)
def test_release_of_the_broker_is_judged(versions: tuple[str, ...], verdict: DoctorResult) -> None:
    assert verdicts(broker.judge_release(set(versions))) == [verdict]


@pytest.mark.parametrize(
    ("changes", "expected", "part"),
    [
        ({}, [OK], "No node has an alarm (nodes: 1)."),
        ({"mem_alarm": True}, [FAILED], "rabbit@a has a memory alarm"),
        ({"disk_free_alarm": True}, [FAILED], "rabbit@a has too little free disk space"),
        ({"running": False}, [FAILED], "rabbit@a does not run"),
        ({"partitions": ["rabbit@b"]}, [FAILED], "rabbit@a is separated from rabbit@b"),
        ({"fd_used": 91}, [WARNING], "uses 91 of 100 file descriptors"),
        ({"fd_used": 90}, [OK], "No node"),
        ({"fd_total": "unknown"}, [OK], "No node"),
        ({"mem_alarm": True, "disk_free_alarm": True}, [FAILED, FAILED], "memory alarm"),
    ],
)
def test_alarms_of_a_node_are_judged(
    changes: dict[str, Any], expected: list[DoctorResult], part: str
) -> None:
    found = list(broker.judge_alarms([node(**changes)]))

    assert verdicts(found) == expected
    assert part in found[0].text


def test_plugins_are_judged_by_what_the_installation_needs() -> None:
    bare = node(enabled_plugins=["rabbitmq_management"])
    complete = node(enabled_plugins=["rabbitmq_prometheus", "rabbitmq_auth_mechanism_ssl"])
    stopped = node(running=False, enabled_plugins=[])

    assert verdicts(broker.judge_plugins([node()], needs_external=False)) == [OK]
    assert verdicts(broker.judge_plugins([bare], needs_external=False)) == [WARNING]
    assert verdicts(broker.judge_plugins([node()], needs_external=True)) == [FAILED]
    assert verdicts(broker.judge_plugins([bare], needs_external=True)) == [FAILED, WARNING]
    assert verdicts(broker.judge_plugins([complete, stopped], needs_external=True)) == [OK]


def policies(**changes: Any) -> list[dict[str, Any]]:
    """Return the policies of the definitions file. `changes` replaces fields of the tickets'."""
    found: list[dict[str, Any]] = definitions_file(OPTIONS, bytes)["policies"]
    return [
        each | changes if each["name"] == "harebell-tickets" else each
        for each in found
        if each["name"] != "harebell-tickets" or changes != {"name": None}
    ]


def test_policies_of_the_definitions_file_have_no_fault() -> None:
    assert verdicts(broker.judge_policies(policies(), OPTIONS)) == [OK]


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"name": None}, "harebell-tickets is missing"),
        ({"pattern": "x"}, "has the pattern 'x', not"),
        ({"apply-to": "all"}, "has the apply-to 'all', not 'queues'"),
        (
            {"definition": {"max-length": 1, "max-length-bytes": 1}},
            "harebell-tickets has no overflow",
        ),
        (
            {
                "definition": {
                    "max-length": 1,
                    "max-length-bytes": 1,
                    "overflow": "drop-head",
                }
            },
            "has the overflow 'drop-head', not 'reject-publish'",
        ),
    ],
)
def test_policy_that_differs_fails(changes: dict[str, Any], part: str) -> None:
    [found] = broker.judge_policies(policies(**changes), OPTIONS)

    assert found.result is FAILED
    assert part in found.text
    assert "definitions" in (found.remedy or "")


def test_policy_with_other_bounds_is_the_choice_of_the_operator() -> None:
    bounds = {"max-length": 1, "max-length-bytes": 2, "overflow": "reject-publish"}

    assert verdicts(broker.judge_policies(policies(definition=bounds), OPTIONS)) == [OK]


def test_other_policy_fails_where_it_replaces_one_of_harebell() -> None:
    def judge(**changes: Any) -> list[Check]:
        other = {"name": "ha", "pattern": ".*", "apply-to": "all", "priority": 0} | changes
        return list(broker.judge_policies([*policies(), other], OPTIONS))

    [found] = judge()
    assert found.result is FAILED
    assert "The policy ha replaces a policy of Harebell" in found.text
    assert "narrow its pattern" in (found.remedy or "")
    assert verdicts(judge(pattern="intake$")) == [FAILED]  # RabbitMQ searches the whole name
    assert verdicts(judge(pattern="^orders$")) == [OK]
    assert verdicts(judge(**{"apply-to": "exchanges"})) == [OK]
    assert verdicts(judge(priority=-1)) == [OK]
    assert verdicts(judge(name="harebell-tenant-commands-acme", priority=1)) == [OK]
    assert verdicts(judge(pattern="(?<unclosed")) == [OK]


def test_virtual_host_without_policies_is_a_warning() -> None:
    assert verdicts(broker.judge_policies([], OPTIONS)) == [WARNING]


def rights(**changes: dict[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the permissions of the definitions file. `changes` replaces fields by user."""
    definitions = definitions_file(OPTIONS, bytes)
    found = [
        each | changes.get(each["user"], {})
        for each in definitions["permissions"]
        if changes.get(each["user"], {}) is not None
    ]
    return found, definitions["topic_permissions"]


USERS = (*service_users(), tenant_user("acme", declares=True))


def test_permissions_of_the_definitions_file_have_no_fault() -> None:
    assert verdicts(broker.judge_permissions(*rights(), USERS, vhost="prod")) == [OK]


def test_permission_that_differs_fails_and_the_remedy_sets_it() -> None:
    found, topics = rights(harebell_ticker={"write": ""})

    [check] = broker.judge_permissions(found, topics, USERS, vhost="prod")

    ticker = next(each for each in USERS if each.name == "harebell_ticker")
    assert check.result is FAILED
    assert "The login harebell_ticker has the write permission ''" in check.text
    assert check.remedy == (
        f"rabbitmqctl set_permissions -p 'prod' harebell_ticker '' '{ticker.write}' '{ticker.read}'"
    )


def test_login_without_permissions_fails() -> None:
    found, topics = rights()
    left = [each for each in found if each["user"] != "harebell_executor"]

    [check] = broker.judge_permissions(left, topics, USERS, vhost="prod")

    assert check.result is FAILED
    assert "harebell_executor has no permission in the virtual host prod" in check.text


def test_topic_permission_of_a_tenant_that_is_missing_fails() -> None:
    found, topics = rights()
    left = [each for each in topics if each["user"] != "acme"]

    [check] = broker.judge_permissions(found, left, USERS, vhost="prod")

    assert check.result is FAILED
    assert "acme has other topic permissions for harebell.events" in check.text
    assert "set_topic_permissions -p 'prod' acme harebell.events" in (check.remedy or "")


def test_virtual_host_without_logins_of_services_is_a_warning() -> None:
    everyone = [{"user": "guest", "configure": ".*", "write": ".*", "read": ".*"}]

    assert verdicts(broker.judge_permissions(everyone, [], USERS, vhost="/")) == [WARNING]


def connection(service: str, version: str = "1.2.0", vhost: str = "prod") -> dict[str, Any]:
    properties = {"service": service, "version": version}
    return {"vhost": vhost, "client_properties": properties}


def services(**versions: str) -> list[dict[str, Any]]:
    """Return a connection of each service. `versions` replaces versions, or removes with ''."""
    names = {name: versions.get(name, "1.2.0") for name in broker.SERVICES}
    return [connection(name, version) for name, version in names.items() if version]


@pytest.mark.parametrize(
    ("connections", "expected", "part"),
    [
        (services(), [OK], "All five services are connected, with the version 1.2.0."),
        (services(executor=""), [FAILED], "connected: executor."),
        (services(executor="1.1.0"), [WARNING], "intake 1.2.0; ticker 1.2.0; dispatcher 1.2.0; ex"),
        ([*services(), connection("ticker", "1.3.0")], [WARNING], "ticker 1.2.0, 1.3.0"),
        ([*services(executor=""), connection("executor", vhost="/")], [FAILED], "executor"),
        (services(executor="", ticker="1.1.0"), [FAILED, WARNING], "connected: executor."),
        ([], [FAILED], "intake, ticker, dispatcher, executor, dlq_inspector"),
    ],
)
def test_services_and_their_versions_are_judged(
    connections: list[dict[str, Any]], expected: list[DoctorResult], part: str
) -> None:
    found = list(broker.judge_services(connections, vhost="prod", own_version="1.2.0"))

    assert verdicts(found) == expected
    assert part in found[0].text


def test_command_of_another_version_than_the_services_is_a_warning() -> None:
    found = list(broker.judge_services(services(), vhost="prod", own_version="1.3.0"))

    assert verdicts(found) == [WARNING]
    assert found[0].text == "The services have the version 1.2.0, and this command has 1.3.0."


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [OK]),
        ({"release": 150000}, [OK]),
        ({"release": 140011}, [FAILED]),
        ({"is_standby": True}, [FAILED]),
        ({"is_standby": True, "release": 140011}, [FAILED, FAILED]),
    ],
)
def test_server_is_judged(changes: dict[str, Any], expected: list[DoctorResult]) -> None:
    assert verdicts(database.judge_server(server(**changes))) == expected


@pytest.mark.parametrize(
    "name", ["fsync", "full_page_writes", "synchronous_commit", "autovacuum", "track_counts"]
)
def test_dangerous_setting_fails(name: str) -> None:
    [found] = database.judge_settings(server(settings=SERVER["settings"] | {name: "off"}))

    assert found.result is FAILED
    assert found.text.startswith(f"The setting {name} is off, so ")
    assert f"ALTER SYSTEM SET {name} = on" in (found.remedy or "")


def test_dangerous_setting_of_a_role_fails() -> None:
    of_role = {("harebell_ticker", "synchronous_commit"): "off"}

    [found] = database.judge_settings(server(role_settings=of_role))

    assert found.result is FAILED
    assert found.text.startswith("The role harebell_ticker has synchronous_commit = off, so ")
    assert "ALTER ROLE harebell_ticker RESET synchronous_commit" in (found.remedy or "")


def test_transactions_without_a_time_limit_are_a_warning() -> None:
    changed = SERVER["settings"] | {"idle_in_transaction_session_timeout": "0"}

    assert verdicts(database.judge_settings(server())) == [OK]
    assert verdicts(database.judge_settings(server(settings=changed))) == [WARNING]


@pytest.mark.parametrize(
    ("used", "instances", "verdict"),
    [(9, 9, OK), (9, 10, WARNING), (81, 1, OK), (82, 1, FAILED)],
)
def test_connections_are_judged_by_the_bound_and_the_pools(
    used: int, instances: int, verdict: DoctorResult
) -> None:
    sessions = DatabaseSessions(max_connections=100, reserved=10, used=used, instances=instances)

    assert verdicts(database.judge_sessions(sessions, pool_max=10)) == [verdict]


@pytest.mark.parametrize(
    ("changes", "verdict", "part"),
    [
        ({}, OK, "the newest migration, 0003"),
        ({"recorded": "0001"}, FAILED, "0003 is the newest (pending: 2)"),
        ({"recorded": None}, FAILED, "no table of Harebell"),
        ({"recorded": "0004"}, WARNING, "0004, which this version lacks"),
        ({"recorded": None, "is_readable": False}, SKIPPED, "may not read"),
    ],
)
def test_migrations_are_judged(changes: dict[str, Any], verdict: DoctorResult, part: str) -> None:
    values: dict[str, Any] = {
        "is_readable": True,
        "recorded": "0003",
        "known": ("0001", "0002", "0003"),
    }
    found = list(database.judge_schema(SchemaVersion(**(values | changes))))

    assert verdicts(found) == [verdict]
    assert part in found[0].text


def snapshot(**changes: Any) -> OldSnapshot:
    values: dict[str, Any] = {
        "kind": "session",
        "pid": 7,
        "application_name": "psql",
        "username": "ann",
        "state": "idle in transaction",
        "age": 301.0,
        "transactions": 5,
    }
    return OldSnapshot(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "verdict", "part", "remedy"),
    [
        ({}, WARNING, "session psql (pid 7, user ann, idle in transaction) holds", "backend(7)"),
        ({"age": 300.0}, OK, "No session", ""),
        ({"age": None, "transactions": 100_001}, WARNING, "100001 transactions ago", "backend(7)"),
        ({"age": None, "transactions": 100_000}, OK, "No session", ""),
        (
            {"kind": "prepared", "pid": None, "application_name": "tx1"},
            WARNING,
            "prepared transaction tx1 of ann",
            "ROLLBACK PREPARED 'tx1'",
        ),
        (
            {"kind": "slot", "age": None, "application_name": "s1", "transactions": 200_000},
            WARNING,
            "replication slot s1",
            "pg_drop_replication_slot('s1')",
        ),
    ],
)
def test_held_snapshots_are_judged(
    changes: dict[str, Any], verdict: DoctorResult, part: str, remedy: str
) -> None:
    found = list(database.judge_snapshots([snapshot(**changes)]))

    assert verdicts(found) == [verdict]
    assert part in found[0].text
    assert remedy in (found[0].remedy or "")


@pytest.mark.parametrize(
    ("version", "verdict", "part"),
    [
        ("2026f", OK, "plan with the time zone data of 2026f"),
        ("2025b", WARNING, "are of 2025b"),
        (None, SKIPPED, "No ticker"),
    ],
)
def test_time_zone_data_of_the_tickers_are_judged(
    version: str | None, verdict: DoctorResult, part: str
) -> None:
    (found,) = database.judge_tzdata(version, date(2026, 11, 27))

    assert (found.result, part in found.text) == (verdict, True)


def test_snapshots_are_skipped_before_their_migration() -> None:
    assert verdicts(database.judge_snapshots(None)) == [SKIPPED]


@pytest.mark.parametrize(
    ("days", "verdict"), [(14, OK), (13.9, WARNING), (0, FAILED), (-1, FAILED)]
)
def test_life_of_a_certificate_is_judged(days: float, verdict: DoctorResult) -> None:
    until = NOW + timedelta(days=days)

    found = links.judge_life("certificate", "The certificate", now=NOW, until=until)

    assert verdicts([found]) == [verdict]


@pytest.mark.parametrize(("seconds", "verdict"), [(1, OK), (-1, OK), (1.1, WARNING)])
def test_difference_of_the_clocks_is_judged(seconds: float, verdict: DoctorResult) -> None:
    found = links.compare_clocks(NOW + timedelta(seconds=seconds), NOW)

    assert verdicts([found]) == [verdict]


async def test_check_that_ends_late_or_with_an_error_is_a_failed_check() -> None:
    async def ends(error: Exception | None) -> list[Check]:
        if error is None:
            await asyncio.Event().wait()
        raise error or AssertionError

    late = await run_check("slow", ends(None), limit=0.01)
    known = await run_check("known", ends(BrokerUnavailable("The broker is gone.")))
    other = await run_check("other", ends(KeyError("name")))

    assert verdicts([*late, *known, *other]) == [FAILED, FAILED, FAILED]
    assert late[0].text == "The check did not end within 0.01 s."
    assert known[0].text == "The broker is gone."
    assert other[0].text == "The check ended with KeyError: 'name'."


def test_login_of_the_management_api_is_that_of_the_amqp_url_by_default() -> None:
    amqp = URL("amqp://ann:secret@broker.example/")

    own = parse_management_url("http://ben:other@broker.example:15672", amqp)
    default = parse_management_url("http://broker.example:15672", amqp)

    assert (own.user, own.password) == ("ben", "other")
    assert (default.user, default.password) == ("ann", "secret")


@pytest.mark.parametrize(
    "url", ["broker.example:15672", "ftp://broker.example", "http://x?cafile=y"]
)
def test_management_url_that_is_no_web_address_is_wrong_usage(url: str) -> None:
    with pytest.raises(InvalidInput) as raised:
        parse_management_url(url, URL("amqp://broker.example"))

    assert raised.value.field == "management_url"


def test_no_unreachable_server_hides_a_check(cli: CommandLine) -> None:
    result = cli(
        "doctor",
        "--json",
        "--tenants-file",
        "-",
        stdin="tenants: 5",
        HAREBELL_AMQP_URL="amqp://127.0.0.1:1",
        HAREBELL_MANAGEMENT_URL="http://127.0.0.1:1",
        HAREBELL_DATABASE_URL="postgresql://127.0.0.1:1/x",
    )

    assert result.stdout, (result.stderr, result.exception)
    rows = {row["check"]: row for row in json.loads(result.stdout)}
    failures = {name for name, row in rows.items() if row["result"] == "failed"}
    assert result.exit_code == 1
    assert failures == {"broker link", "management link", "database link", "tenant policy"}
    assert {name for name, row in rows.items() if row["result"] == "skipped"} == {
        "broker release",
        "topology",
        "alarms",
        "plugins",
        "policies",
        "permissions",
        "services",
        "clock",
        "database release",
        "database settings",
        "database connections",
        "migrations",
        "held snapshots",
        "time zone data",
    }
    assert all(row["text"].endswith(".") and row["remedy"] for row in rows.values())


def test_table_has_the_remedies_below_the_checks(cli: CommandLine) -> None:
    result = cli("doctor", HAREBELL_AMQP_URL="amqp://127.0.0.1:1")

    checks, _, remedies = result.stdout.partition("\n\n")
    assert result.exit_code == 1
    assert "broker link" in checks
    assert "Check the URL, the network and the server" in remedies
