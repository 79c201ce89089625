"""A rule is refused or answered in bounded time, whatever was sent in and from whenever."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from time import process_time
from types import FrameType

import pytest
from croniter import croniter

from harebell.contract.errors import InvalidCron, UnknownTimezone
from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron import Cron
from harebell.domain.cron.next_time import MAX_SEARCH_STEPS

MEGABYTE = 1_000_000
HOSTILE = [
    "*" * MEGABYTE,
    "* " * MEGABYTE,
    "9" * MEGABYTE,
    "-" * MEGABYTE,
    "," * MEGABYTE,
    "1," * MEGABYTE + " * * * *",
    "@" * MEGABYTE,
    "H(" * MEGABYTE,
    "\u0661" * MEGABYTE,
    "\ud800" * MEGABYTE,
    " " * MEGABYTE + "0 0 * * *",
    "0-59/1," * 40 + "0 * * * *",
    "9" * 240 + " * * * *",
    "*/" + "9" * 240 + " * * * *",
    "0 0 * * 1#" + "9" * 240,
    "0 0 " + "9" * 240 + "W * *",
    "H(0-" + "9" * 240 + ") * * * *",
    "(" * 120 + ")" * 120 + " * * * *",
]
START = datetime(2026, 11, 1, tzinfo=UTC)


@contextmanager
def croniter_asked() -> Iterator[Callable[[], int]]:
    asked = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal asked
        asked += event == "call" and frame.f_code is croniter.get_next.__code__

    sys.setprofile(count)
    try:
        yield lambda: asked
    finally:
        sys.setprofile(None)


@pytest.mark.requirement("S12")
def test_hostile_expression_is_rejected_quickly() -> None:
    began = process_time()

    for expression in HOSTILE:
        with pytest.raises(InvalidCron) as refusal:
            Cron.parse(expression)
        assert len(refusal.value.expression) <= 256
        assert len(str(refusal.value)) < 600

    assert process_time() - began < 1


@pytest.mark.requirement("S12")
def test_rejected_expression_never_reaches_croniter() -> None:
    with croniter_asked() as asked:
        for expression in HOSTILE:
            with pytest.raises(InvalidCron):
                Cron.parse(expression)

    assert asked() == 0


@pytest.mark.requirement("S12")
@pytest.mark.parametrize(
    ("expression", "zone", "moment"),
    [
        ("* * * * * *", "America/New_York", "2026-03-08 06:59:59.5"),
        ("* * * * * *", "Antarctica/Troll", "2026-03-29 00:59:59"),
        ("* * * * * *", "Pacific/Apia", "2011-12-30 09:59:59"),
        ("* * * * *", "Pacific/Apia", "2011-12-30 09:59:59"),
        ("*/7 * * * *", "Pacific/Apia", "2011-12-30 09:59:59"),
        ("30 2 29 3 *", "Europe/Berlin", "2026-03-28 00:00:00"),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25 00:30:00"),
        ("*/30 2 29 3 *", "Europe/Berlin", "2026-03-01 00:00:00"),
        ("0 0 29 2 *", "Europe/Berlin", "2096-03-01 00:00:00"),
    ],
)
@pytest.mark.parametrize("gap", [None, *DstGap])
@pytest.mark.parametrize("overlap", [None, *DstOverlap])
def test_one_search_calls_the_matcher_at_most_eight_times(
    expression: str, zone: str, moment: str, gap: DstGap | None, overlap: DstOverlap | None
) -> None:
    cron = Cron.parse(expression, zone, dst_gap=gap, dst_overlap=overlap)

    with croniter_asked() as asked:
        cron.next_after(datetime.fromisoformat(moment).replace(tzinfo=UTC))

    assert 1 <= asked() <= MAX_SEARCH_STEPS == 8


@pytest.mark.requirement("S12")
def test_call_within_the_cached_interval_does_not_search() -> None:
    cron = Cron.parse("17 4 * * *", "Europe/Berlin")
    following = cron.next_after(START)

    with croniter_asked() as asked:
        again = Cron.parse("17 4 * * *", "Europe/Berlin")
        answers = {again.next_after(START + timedelta(minutes=n)) for n in range(180)}

    assert answers == {following}
    assert asked() == 0


@pytest.mark.requirement("S12")
def test_cached_interval_ends_at_its_result() -> None:
    cron = Cron.parse("0 4 * * *")
    first = cron.next_after(START)
    assert first is not None

    assert cron.next_after(first) == first + timedelta(days=1)
    assert cron.next_after(first - timedelta(microseconds=1)) == first
    assert cron.next_after(START - timedelta(days=1)) == first - timedelta(days=1)


@pytest.mark.requirement("S12")
@pytest.mark.parametrize("moment", [datetime.max, datetime(9950, 6, 1)])  # noqa: DTZ001, DTZ901  # the zone follows below
def test_next_after_returns_none_at_the_latest_time(moment: datetime) -> None:
    assert Cron.parse("* * * * *", "Asia/Tokyo").next_after(moment.replace(tzinfo=UTC)) is None


@pytest.mark.requirement("S12")
def test_next_after_finds_a_time_from_the_earliest_time() -> None:
    beginning = datetime.min.replace(tzinfo=timezone(timedelta(hours=-12)))

    following = Cron.parse("0 0 * * *", "America/New_York").next_after(beginning)

    assert following is not None
    assert following.year == 1900


def test_next_after_rejects_a_time_without_an_offset() -> None:
    with pytest.raises(ValueError, match="offset"):
        Cron.parse("* * * * *").next_after(datetime(2026, 1, 1))  # noqa: DTZ001  # the rejected form


@pytest.mark.requirement("S08")
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Kathmandu", "Etc/GMT+5", "UTC", "EST5EDT"])
def test_every_iana_name_is_accepted(zone: str) -> None:
    assert Cron.parse("0 0 * * *", zone).zone.key == zone


@pytest.mark.requirement("S08")
def test_default_time_zone_is_utc() -> None:
    assert Cron.parse("0 0 * * *") == Cron.parse("0 0 * * *", "UTC")


@pytest.mark.requirement("S08")
@pytest.mark.parametrize(
    "zone",
    [
        "",
        "Nowhere/Atall",
        "Europe",
        "europe/berlin/",
        "+01:00",
        "../../etc/passwd",
        "/etc",
        "Europe/Berlin\x00",
        "Europe/\ud800",
        "zone.tab",
        "tzdata.zi",
        "leapseconds",
        "localtime",
        "posixrules",
        "Factory",
        "posix/UTC",
        "right/UTC",
        "x" * MEGABYTE,
    ],
)
def test_name_outside_the_time_zone_database_is_rejected(zone: str) -> None:
    with pytest.raises(UnknownTimezone) as refusal:
        Cron.parse("0 0 * * *", zone)

    assert len(refusal.value.name) <= 64
