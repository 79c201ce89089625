"""`harebell import`: the manifests, and the sentences about everything without a manifest."""

import sys
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import orjson
import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker

from harebell.cli.imports.celery_entries import BeatDocument, convert_beat
from harebell.cli.imports.crontab_lines import CrontabOptions, convert_crontab
from harebell.cli.manifests.files import read_manifests
from harebell.cli.manifests.plan import desired_schedules
from harebell.contract.message import parse

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)
OPTIONS = CrontabOptions(timezone="UTC", task="shell.run")
EVERY_MINUTE = {
    "minute": ("*", [*range(60)]),
    "hour": ("*", [*range(24)]),
    "day_of_month": ("*", [*range(1, 32)]),
    "month_of_year": ("*", [*range(1, 13)]),
    "day_of_week": ("*", [*range(7)]),
}


def entry(**fields: Any) -> dict[str, Any]:
    return {
        "name": "remind",
        "task": "shop.remind",
        "schedule": {"kind": "interval", "seconds": 30.0},
        "arguments": [[1], {"a": None}],
        "serializer": "json",
        "route": {"exchange": "shop", "routing_key": "mail"},
        "options": {},
        **fields,
    }


def crontab(**fields: tuple[str, list[int]]) -> dict[str, Any]:
    return {"kind": "crontab", "fields": {**EVERY_MINUTE, **fields}, "timezone": "UTC"}


def beat(*entries: dict[str, Any], **document: Any) -> Any:
    whole = {"timezone": "UTC", "scheduler": "celery.beat:PersistentScheduler", **document}
    return convert_beat(
        parse(BeatDocument, {**whole, "entries": [*entries]}), key_prefix="", now=NOW
    )


@pytest.mark.parametrize(
    ("line", "cron"),
    [
        ("*/5 * * * * run", "*/5 * * * *"),
        ("20/10 3 * * MON-FRI\trun", "20/10 3 * * MON-FRI"),
        ("@daily run", "@daily"),
        ("@Hourly run", "@hourly"),
        ("0~29 4 * * * run", "H(0-29) 4 * * *"),
        ("~ 4 * * * run", "H 4 * * *"),
        ("  0 9 1 * *   run  ", "0 9 1 * *"),
    ],
)
def test_line_of_a_crontab_becomes_a_manifest(line: str, cron: str) -> None:
    conversion = convert_crontab(line, OPTIONS, now=NOW)

    (manifest,) = conversion.manifests
    assert (manifest["when"], conversion.omitted) == ({"cron": cron}, [])
    assert manifest["target"] == {"task": {"name": "shell.run", "args": {"command": "run"}}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("@reboot run", "a service has no boot that @reboot could follow"),
        ("*/10 * * * * * run", "six time fields"),
        ("*/10 0 9-17 * * 1,3 run", "six time fields"),
        ("99 * * * * run", "The minute must be from 0 to 59, not 99"),
        ("0 22-2 * * * run", "must not be reversed"),
        ("0 0 31 2 * run", "no date matches"),
        ("0 0 * * *", "no command after the times"),
        ("@daily", "no command after the times"),
    ],
)
def test_line_without_a_manifest_has_a_reason(line: str, reason: str) -> None:
    conversion = convert_crontab(f"# first line\n{line}\n", OPTIONS, now=NOW)

    (text,) = conversion.omitted
    assert conversion.manifests == []
    assert text.startswith("Line 2 has no manifest: ")
    assert reason in text


def test_percent_begins_the_standard_input_of_a_command() -> None:
    (manifest,) = convert_crontab(r"0 9 * * * a 5\%%b%c\%", OPTIONS, now=NOW).manifests

    assert manifest["target"]["task"]["args"] == {"command": "a 5%", "stdin": "b\nc%\n"}


def test_zone_variables_and_users_are_reported() -> None:
    text = "PATH=/bin\nCRON_TZ = 'Europe/Berlin'\n0 9 * * * root run\n"
    options = CrontabOptions(timezone="UTC", task="shell.run", has_users=True)

    conversion = convert_crontab(text, options, now=NOW)

    assert conversion.manifests[0]["when"]["timezone"] == "Europe/Berlin"
    assert conversion.manifests[0]["target"]["task"]["args"] == {"command": "run"}
    assert conversion.remarks == [
        "Line 1: The variable PATH is not carried over.",
        "Line 2: The following times are in the time zone Europe/Berlin.",
        "Line 3: The user root is not carried over.",
    ]


def test_keys_do_not_depend_on_the_position_of_a_line() -> None:
    before = convert_crontab("0 9 * * * a\n0 9 * * * b\n", OPTIONS, now=NOW)
    after = convert_crontab("0 9 * * * b\n# new\n0 9 * * * a\n0 9 * * * a\n", OPTIONS, now=NOW)

    first, second = (each["key"] for each in before.manifests)
    assert [each["key"] for each in after.manifests] == [second, first, f"{first}-2"]


def test_debian_day_rule_is_remarked() -> None:
    conversion = convert_crontab("0 0 */2 * MON run\n0 0 */2 * * run", OPTIONS, now=NOW)

    assert conversion.remarks == [
        "Line 1: Debian's cron requires both day fields here, and Harebell one of them."
    ]


def test_beat_entry_becomes_a_message_of_protocol_2() -> None:
    conversion = beat(entry(options={"priority": 3, "expires": 60.0, "queue": "mail"}))

    (manifest,) = conversion.manifests
    message = manifest["target"]["amqp"]
    assert manifest["when"] == {"every": "30s"}
    assert (message["exchange"], message["routing_key"]) == ("shop", "mail")
    nothing = dict.fromkeys(("callbacks", "errbacks", "chain", "chord"))
    assert message["json"] == [[1], {"a": None}, nothing]
    assert message["headers"] == {
        "lang": "py",
        "task": "shop.remind",
        "id": {"run": "id"},
        "root_id": {"run": "id"},
        "retries": 0,
        "origin": "harebell",
        "argsrepr": "(1,)",
        "kwargsrepr": "{'a': None}",
    }
    assert message["correlation_id"] == {"run": "id"}
    assert (message["priority"], message["expiration"]) == (3, "1m")
    assert len(conversion.remarks) == 1


@pytest.mark.parametrize(
    ("fields", "cron"),
    [
        ({}, "* * * * *"),
        ({"minute": ("*/15", [0, 15, 30, 45])}, "*/15 * * * *"),
        ({"hour": ("22-2", [0, 1, 2, 22, 23])}, "* 0,1,2,22,23 * * *"),
        ({"day_of_week": ("mon-fri", [1, 2, 3, 4, 5])}, "* * * * mon-fri"),
        ({"day_of_week": ("sat-sun", [0, 6])}, "* * * * 0,6"),
        ({"day_of_month": ("*/10", [1, 11, 21, 31])}, "* * */10 * *"),
        ({"minute": ("{1, 2}", [1, 2])}, "1,2 * * * *"),
    ],
)
def test_crontab_of_celery_becomes_an_expression(
    fields: dict[str, tuple[str, list[int]]], cron: str
) -> None:
    conversion = beat(entry(schedule=crontab(**fields)), timezone="UTC")

    assert [each["when"] for each in conversion.manifests] == [{"cron": cron}]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (
            {"schedule": {"kind": "solar", "text": "<solar: sunset>"}},
            "the schedule <solar: sunset>",
        ),
        ({"schedule": {"kind": "interval", "seconds": 0.5}}, "at least 1 s, and the entry has 0.5"),
        ({"arguments": None}, "JSON only"),
        ({"serializer": "pickle"}, "the serializer pickle"),
        ({"route": {"exchange": "", "routing_key": "a"}}, "no exchange"),
        ({"route": {"exchange": "amq.topic", "routing_key": "a"}}, "reserved"),
        (
            {"schedule": crontab(day_of_month=("1", [1]), day_of_week=("1", [1]))},
            "both day_of_month and day_of_week",
        ),
    ],
)
def test_beat_entry_without_a_manifest_has_a_reason(fields: dict[str, Any], reason: str) -> None:
    conversion = beat(entry(**fields), entry(name="good"))

    (text,) = conversion.omitted
    assert text.startswith("The entry 'remind' has no manifest: ")
    assert reason in text
    assert [each["key"] for each in conversion.manifests] == ["good"]


def test_options_and_another_scheduler_are_reported() -> None:
    options = {"countdown": 5, "time_limit": 60, "expires": "tomorrow"}
    conversion = beat(entry(options=options), scheduler="django_celery_beat:DatabaseScheduler")

    texts = "\n".join(conversion.remarks)
    for part in ("DatabaseScheduler", "countdown", "time_limit", "expires='tomorrow'"):
        assert part in texts


def test_output_is_read_by_apply_and_needs_no_broker(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "crontab"
    file.write_text("PATH=/bin\n0 9 * * * a\n5 9 * * * b\n@reboot c\n")

    result = cli("import", "crontab", str(file), "--task", "shell.run", "--timezone", "UTC")

    documents = read_manifests("-", BytesIO(result.stdout.encode()))
    assert len(desired_schedules(documents, "cron")) == 2
    assert result.exit_code == 4
    assert "@reboot" in result.stderr
    assert broker.connections == []


def test_celery_output_is_read_by_apply(cli: CommandLine, tmp_path: Path) -> None:
    document = {"timezone": "UTC", "scheduler": "x", "entries": [entry(), entry(name="b")]}
    (tmp_path / "document").write_bytes(orjson.dumps(document))
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!/bin/sh\ncat {tmp_path}/document\n")
    interpreter.chmod(0o700)

    result = cli("import", "celery", "shop:app", "--python", str(interpreter), "--key-prefix", "c-")

    # Equal objects become no anchors, which apply refuses.
    documents = read_manifests("-", BytesIO(result.stdout.encode()))
    assert list(desired_schedules(documents, "shop")) == ["c-remind", "c-b"]
    assert result.exit_code == 0
    assert "The entries of the scheduler x are not carried over." in result.stderr


@pytest.mark.parametrize(
    ("body", "reason"),
    [(b"\xff\xfe", "must be UTF-8, but byte 0 is not"), (b"#\n" * 10_001, "at most 10000 lines")],
)
def test_invalid_crontab_is_rejected(
    cli: CommandLine, tmp_path: Path, body: bytes, reason: str
) -> None:
    file = tmp_path / "crontab"
    file.write_bytes(body)

    result = cli("import", "crontab", str(file), "--task", "a", "--timezone", "UTC")

    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr


@pytest.mark.parametrize(
    ("python", "reason"),
    [(sys.executable, "No module named"), ("/nowhere/python", "cannot be started")],
)
def test_application_that_cannot_be_imported_is_an_error(
    cli: CommandLine, python: str, reason: str
) -> None:
    result = cli("import", "celery", "no_such_module:app", "--python", python)

    assert (result.exit_code, result.stdout) == (2, "")
    assert reason in result.stderr
