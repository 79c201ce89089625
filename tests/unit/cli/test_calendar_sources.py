"""`harebell calendar put`: the days of iCalendar files, countries and markets."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.unit.cli.conftest import CommandLine, FakeBroker

BERLIN = ("--timezone", "Europe/Berlin")
ICAL = """BEGIN:VCALENDAR\r
VERSION:2.0\r
PRODID:-//Acme//Closures//EN\r
BEGIN:VEVENT\r
UID:1\r
DTSTART;VALUE=DATE:20271224\r
DTEND;VALUE=DATE:20271227\r
SUMMARY:Closed\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:2\r
DTSTART;VALUE=DATE:20200501\r
RRULE:FREQ=YEARLY\r
EXDATE;VALUE=DATE:20280501\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:3\r
DTSTART;VALUE=DATE:20270601\r
STATUS:CANCELLED\r
END:VEVENT\r
BEGIN:VEVENT\r
UID:4\r
DTSTART:20270101T000000Z\r
RRULE:FREQ=SECONDLY\r
END:VEVENT\r
END:VCALENDAR\r
"""


@pytest.fixture
def stored(broker: FakeBroker) -> FakeBroker:
    broker.respond = lambda _: {"ok": True, "name": "days", "version": 1, "status": "created"}
    return broker


def put(cli: CommandLine, *arguments: str) -> Any:
    return cli("calendar", "put", "days", *arguments)


@pytest.mark.requirement("ASK-9")
def test_ical_file_gives_the_whole_days_of_its_repeated_events(
    cli: CommandLine, stored: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "closures.ics"
    file.write_text(ICAL)

    result = put(cli, "--ical", str(file), "--years", "2027-2029", *BERLIN)

    assert result.exit_code == 0, result.output
    body = stored.requests[0].body
    assert body["days"] == ["2027-05-01", "2027-12-24/2027-12-26", "2029-05-01"]
    assert body["timezone"] == "Europe/Berlin"
    assert "The calendar contains 5 days from 2027 to 2029." in result.stderr
    assert "It omits 1 event with a time of day." in result.stderr


@pytest.mark.requirement("ASK-9")
@pytest.mark.parametrize(
    ("subdivision", "has_epiphany"), [((), False), (("--subdivision", "BY"), True)]
)
def test_country_gives_its_public_holidays(
    cli: CommandLine, stored: FakeBroker, subdivision: tuple[str, ...], *, has_epiphany: bool
) -> None:
    result = put(cli, "--country", "DE", *subdivision, "--years", "2027", *BERLIN)

    assert result.exit_code == 0, result.output
    days = stored.requests[0].body["days"]
    assert {"2027-01-01", "2027-03-26", "2027-12-25/2027-12-26"} <= set(days)
    assert ("2027-01-06" in days) == has_epiphany
    count = 12 if has_epiphany else 9
    assert f"The calendar contains {count} days from 2027." in result.stderr


@pytest.mark.requirement("ASK-9")
def test_market_gives_its_holidays_and_weekends_of_the_default_years(
    cli: CommandLine, stored: FakeBroker
) -> None:
    result = put(cli, "--market", "XNYS", "--timezone", "America/New_York")

    assert result.exit_code == 0, result.output
    body = stored.requests[0].body
    assert {"2026-11-26", "2027-11-25", "2028-11-23"} <= set(body["days"])
    assert body["weekly"] == [{"weekdays": ["sat", "sun"], "from": "00:00", "to": "00:00"}]
    assert "days from 2026 to 2028 and each weekend." in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "must have one source"),
        (("--country", "DE", "--market", "XNYS", *BERLIN), "must have one source"),
        (("--subdivision", "BY", "--market", "XNYS", *BERLIN), "must follow --country"),
        (("--country", "DE"), "--timezone must be present"),
        (("--country", "QQ", *BERLIN), "The country must be a known code"),
        (("--country", "DE", "--subdivision", "QQ", *BERLIN), "must be one of BB, BE, BW"),
        (("--market", "QQ", *BERLIN), "The market must be a known code"),
        (("--country", "DE", "--years", "2029-2027", *BERLIN), "The years must be a year"),
        (("--country", "DE", "--years", "2000-2020", *BERLIN), "at most 20 years"),
        (("-", "--years", "2027"), "are for the other sources, not for FILE"),
    ],
)
def test_put_rejects_a_wrong_source(
    cli: CommandLine, broker: FakeBroker, arguments: tuple[str, ...], reason: str
) -> None:
    result = put(cli, *arguments)

    assert result.exit_code == 2, result.output
    assert reason in " ".join(result.stderr.split())
    assert broker.requests == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Not a calendar", "The file must be an iCalendar file"),
        ("", "The file must be an iCalendar file"),
        (ICAL.replace("2027", "1999").replace("FREQ=YEARLY", "FREQ=YEARLY;COUNT=1"), "has none"),
        (ICAL.replace("END:VCALENDAR", ""), "The file must be an iCalendar file"),
    ],
)
def test_put_rejects_a_file_without_days(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path, text: str, reason: str
) -> None:
    file = tmp_path / "closures.ics"
    file.write_text(text)

    result = put(cli, "--ical", str(file), *BERLIN)

    assert result.exit_code == 2, result.output
    assert reason in " ".join(result.stderr.split())
    assert broker.requests == []


def test_put_rejects_more_ranges_than_a_calendar_contains(
    cli: CommandLine, broker: FakeBroker, tmp_path: Path
) -> None:
    file = tmp_path / "many.ics"
    weekly = ICAL.replace("RRULE:FREQ=YEARLY", "RRULE:FREQ=WEEKLY")
    file.write_text(weekly)

    result = put(cli, "--ical", str(file), "--years", "2030-2040", *BERLIN)

    assert result.exit_code == 2, result.output
    assert "at most 500 ranges, not 574. Store fewer years." in " ".join(result.stderr.split())
    assert broker.requests == []


@pytest.mark.parametrize("source", [("--country", "DE"), ("--market", "XNYS"), ("--ical", "-")])
def test_put_names_the_extra_if_its_packages_are_missing(source: tuple[str, str]) -> None:
    program = (
        "import sys\n"
        "for name in ('holidays', 'icalendar', 'recurring_ical_events'): sys.modules[name] = None\n"
        "from harebell.cli.__main__ import main\n"
        f"sys.argv = ['harebell', 'calendar', 'put', 'days', *{source}, '--timezone', 'UTC']\n"
        "main()\n"
    )

    completed = subprocess.run(  # noqa: S603  # the command is a constant
        [sys.executable, "-c", program],
        input="",
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path), "HAREBELL_AMQP_URL": "amqp://broker.example"},
    )

    assert completed.returncode == 2
    assert "pip install 'harebell[calendars]'" in completed.stderr
