"""`harebell dev` without a running stack: exit codes and output."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from harebell.cli.app import app
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.process import ProcessContext
from harebell.client import Client
from harebell.dev.plan import PlannedService, StackPlan
from harebell.dev.state import save_plan
from harebell.dev.status import ProcessReport, ServerReport, StackHealth, StackStatus

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DEAD = ProcessReport(name="ticker-1", pid=None, port=20_002, ready=False)
STARTING = ProcessReport(name="ticker-1", pid=7, port=20_002, ready=False)
READY = ProcessReport(name="ticker-1", pid=7, port=20_002, ready=True)


def dev(root: Path, *arguments: str) -> Result:
    surroundings = ProcessContext(connect=Client.connect, now=lambda: NOON)
    return CliRunner().invoke(app, ["dev", *arguments, "--root", str(root)], obj=surroundings)


@pytest.fixture
def started_once(tmp_path: Path) -> Path:
    service = PlannedService(name="ticker-1", command=("true",), environment={}, port=20_002)
    plan = StackPlan(
        amqp_url="amqp://given",
        database_url="postgresql://given",
        management_url=None,
        restart=True,
        services=(service,),
    )
    save_plan(tmp_path, plan)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("status", ExitCode.NO_MATCH), ("stop", ExitCode.DONE), ("logs", ExitCode.NO_MATCH)],
)
def test_commands_without_a_stack_report_it_and_create_nothing(
    tmp_path: Path, arguments: str, code: ExitCode
) -> None:
    result = dev(tmp_path / "none", arguments)

    assert result.exit_code == code
    assert result.stdout == ""
    assert result.stderr.startswith("harebell: No")
    assert not (tmp_path / "none").exists()


def test_status_of_a_stopped_stack_lists_its_processes_as_json(started_once: Path) -> None:
    result = dev(started_once, "status", "-o", "json")

    assert result.exit_code == ExitCode.NO_MATCH
    assert json.loads(result.stdout) == {
        "amqp_url": "amqp://given",
        "database_url": "postgresql://given",
        "management_url": None,
        "identity": "routing_key",
        "processes": [{"name": "ticker-1", "pid": None, "port": 20_002, "ready": False}],
        "servers": [{"name": "supervisor", "pid": None}],
    }


def test_logs_prints_one_log_or_all_with_their_names(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "ticker-1.log").write_text("a\nb\n")
    (tmp_path / "logs" / "rabbitmq.log").write_text("c\n")

    assert dev(tmp_path, "logs", "ticker-1", "-n", "1").stdout == "b\n"
    assert dev(tmp_path, "logs").stdout == "rabbitmq | c\nticker-1 | a\nticker-1 | b\n"
    assert "rabbitmq, ticker-1" in dev(tmp_path, "logs", "tocker").stderr


def test_damaged_state_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text("{")

    result = dev(tmp_path, "status")

    assert result.exit_code == ExitCode.FAILED
    assert "plan.json is damaged" in result.stderr


@pytest.mark.parametrize(
    ("process", "server", "health"),
    [
        (READY, 8, StackHealth.RUNNING),
        (READY, None, StackHealth.PARTLY),
        (STARTING, 8, StackHealth.PARTLY),
        (DEAD, 8, StackHealth.PARTLY),
        (DEAD, None, StackHealth.STOPPED),
    ],
)
def test_health_summarises_the_processes(
    process: ProcessReport, server: int | None, health: StackHealth
) -> None:
    report = StackStatus(
        amqp_url="amqp://given",
        database_url="postgresql://given",
        management_url=None,
        identity="routing_key",
        processes=(process,),
        servers=(ServerReport(name="rabbitmq", pid=server),),
    )

    assert report.health is health
