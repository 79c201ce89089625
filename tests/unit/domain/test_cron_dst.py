"""Scheduled times around clock changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from struct import pack
from zoneinfo import ZoneInfo

import pytest

from harebell.contract.when import DstGap, DstOverlap
from harebell.domain.cron import Cron

BERLIN = "Europe/Berlin"  # gap 2026-03-29 01:00Z, overlap 2026-10-25 01:00Z
NEW_YORK = "America/New_York"  # gap 2026-03-08 07:00Z, overlap 2026-11-01 06:00Z
LORD_HOWE = "Australia/Lord_Howe"  # half an hour: overlap 2026-04-04 15:00Z, gap 10-03 15:30Z
TROLL = "Antarctica/Troll"  # two hours: gap 2026-03-29 01:00Z
APIA = "Pacific/Apia"  # 2011-12-30 does not exist: 24 h are skipped at 10:00Z
CASEY = "Antarctica/Casey"  # 2010-03-05 three hours back at 2010-03-04 15:00Z
LIBREVILLE = "Africa/Libreville"  # never changes

NEXT, SKIP = DstGap.NEXT, DstGap.SKIP
FIRST, SECOND, BOTH = DstOverlap.FIRST, DstOverlap.SECOND, DstOverlap.BOTH


def runs(cron: Cron, after: str, until: str) -> list[str]:
    moment, end = at(after), at(until)
    found = []
    while (following := cron.next_after(moment)) is not None and following <= end:
        assert following > moment
        assert following.utcoffset() == timedelta(0)
        found.append(following.strftime("%H:%M" if following.second == 0 else "%H:%M:%S"))
        moment = following
    return found


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.requirement("S08", "ASK-8")
@pytest.mark.parametrize(
    ("expression", "zone", "after", "until", "expected"),
    [
        # Fixed times of the skipped stretch run right after it, together once.
        ("30 2 * * *", BERLIN, "2026-03-29 00:00", "2026-03-29 12:00", ["01:00"]),
        ("0 3 * * *", BERLIN, "2026-03-29 00:00", "2026-03-29 12:00", ["01:00"]),
        ("0,30 2 * * *", BERLIN, "2026-03-29 00:00", "2026-03-29 12:00", ["01:00"]),
        (
            "30 1-3 * * *",
            BERLIN,
            "2026-03-29 00:00",
            "2026-03-29 12:00",
            ["00:30", "01:00", "01:30"],
        ),
        (
            "0 */2 * * *",
            NEW_YORK,
            "2026-03-08 04:00",
            "2026-03-08 11:00",
            ["05:00", "08:00", "10:00"],
        ),
        ("*/30 2 * * *", BERLIN, "2026-03-29 00:00", "2026-03-29 12:00", []),
        ("@hourly", BERLIN, "2026-03-29 00:00", "2026-03-29 03:00", ["01:00", "02:00", "03:00"]),
        (
            "* * * * * *",
            NEW_YORK,
            "2026-03-08 06:59:58",
            "2026-03-08 07:00:01",
            ["06:59:59", "07:00", "07:00:01"],
        ),
        ("15 2 * * *", LORD_HOWE, "2026-10-03 12:00", "2026-10-04 12:00", ["15:30"]),
        ("30 1,2 * * *", TROLL, "2026-03-29 00:00", "2026-03-29 12:00", ["01:00"]),
        # Fixed times of the repeated stretch run in its first pass; wildcards follow the clock.
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", "2026-10-25 12:00", ["00:30"]),
        ("30 1 * * *", NEW_YORK, "2026-11-01 00:00", "2026-11-01 12:00", ["05:30"]),
        ("30 1-2 * * *", NEW_YORK, "2026-11-01 00:00", "2026-11-01 12:00", ["05:30", "07:30"]),
        (
            "0 * * * *",
            NEW_YORK,
            "2026-11-01 04:00",
            "2026-11-01 08:00",
            ["05:00", "06:00", "07:00", "08:00"],
        ),
        (
            "*/30 1 * * *",
            NEW_YORK,
            "2026-11-01 00:00",
            "2026-11-01 12:00",
            ["05:00", "05:30", "06:00", "06:30"],
        ),
        ("45 1 * * *", LORD_HOWE, "2026-04-04 12:00", "2026-04-05 12:00", ["14:45"]),
        (
            "45 * * * *",
            LORD_HOWE,
            "2026-04-04 14:00",
            "2026-04-04 17:00",
            ["14:45", "15:15", "16:15"],
        ),
        # From three hours on it is a correction: the new time counts at once.
        ("30 2 * * *", APIA, "2011-12-29 00:00", "2011-12-31 00:00", ["12:30", "12:30"]),
        ("* * * * *", APIA, "2011-12-30 09:58", "2011-12-30 10:01", ["09:59", "10:00", "10:01"]),
        ("30 0 * * *", CASEY, "2010-03-04 12:00", "2010-03-04 20:00", ["13:30", "16:30"]),
        ("30 2 * * *", LIBREVILLE, "2026-03-29 00:00", "2026-03-30 00:00", ["01:30"]),
    ],
)
def test_default_dst_rule_equals_debian_cron(
    expression: str, zone: str, after: str, until: str, expected: list[str]
) -> None:
    assert runs(Cron.parse(expression, zone), after, until) == expected


@pytest.mark.requirement("S08", "ASK-8")
@pytest.mark.parametrize(
    ("expression", "gap", "expected"),
    [
        ("30 2 * * *", NEXT, ["01:00"]),
        ("30 2 * * *", SKIP, []),
        ("*/30 2 * * *", NEXT, ["01:00"]),
        ("*/30 2 * * *", SKIP, []),
        ("*/20 * * * *", NEXT, ["00:20", "00:40", "01:00", "01:20"]),
        ("10 */1 * * *", NEXT, ["00:10", "01:00", "01:10"]),
        ("10 */1 * * *", SKIP, ["00:10", "01:10"]),
    ],
)
def test_dst_gap_selects_the_time_after_a_gap(
    expression: str, gap: DstGap, expected: list[str]
) -> None:
    cron = Cron.parse(expression, BERLIN, dst_gap=gap)

    assert runs(cron, "2026-03-29 00:00", "2026-03-29 01:20") == expected


@pytest.mark.requirement("S08", "ASK-8")
@pytest.mark.parametrize(
    ("expression", "overlap", "expected"),
    [
        ("30 2 * * *", FIRST, ["00:30"]),
        ("30 2 * * *", SECOND, ["01:30"]),
        ("30 2 * * *", BOTH, ["00:30", "01:30"]),
        ("*/30 * * * *", FIRST, ["23:30", "00:00", "00:30", "02:00"]),
        ("*/30 * * * *", SECOND, ["23:30", "01:00", "01:30", "02:00"]),
        ("*/30 * * * *", BOTH, ["23:30", "00:00", "00:30", "01:00", "01:30", "02:00"]),
        ("0 3 * * *", SECOND, ["02:00"]),
    ],
)
def test_dst_overlap_selects_the_pass_of_a_repeated_time(
    expression: str, overlap: DstOverlap, expected: list[str]
) -> None:
    cron = Cron.parse(expression, BERLIN, dst_overlap=overlap)

    assert runs(cron, "2026-10-24 23:00", "2026-10-25 02:00") == expected


@pytest.mark.requirement("S08")
@pytest.mark.parametrize("overlap", [None, *DstOverlap])
@pytest.mark.parametrize("moment", ["00:00", "00:30", "00:59:59.9", "01:00", "01:30", "01:59:59.9"])
def test_next_time_is_later_within_a_repeated_hour(moment: str, overlap: DstOverlap | None) -> None:
    cron = Cron.parse("0,30 2 * * *", BERLIN, dst_overlap=overlap)
    stood = at(f"2026-10-25 {moment}")

    following = cron.next_after(stood)

    assert following is not None
    assert following > stood


@pytest.mark.requirement("S08")
def test_rule_first_continues_after_the_second_pass() -> None:
    everything = Cron.parse("* * * * * *", BERLIN, dst_overlap=FIRST)

    assert everything.next_after(at("2026-10-25 01:00:01")) == at("2026-10-25 02:00")


@pytest.mark.requirement("S08")
@pytest.mark.parametrize("gap", [None, *DstGap])
@pytest.mark.parametrize("overlap", [None, *DstOverlap])
def test_next_time_is_later_when_a_zone_changes_twice_within_an_hour(
    gap: DstGap | None, overlap: DstOverlap | None
) -> None:
    for offsets in ((2, 1, 0), (0, 1, 2), (2, 1, 2), (1, 2, 1), (2, 0, 1), (0, 2, 1)):
        zone = changing_twice(offsets, at("2026-10-25 01:00"), at("2026-10-25 01:30"))
        for expression in ("*/10 * * * *", "20,40 0-4 * * *"):
            reading = Cron.parse(expression, dst_gap=gap, dst_overlap=overlap)
            cron = replace(reading, zone=zone)
            for minutes in range(0, 300, 5):
                stood = at("2026-10-24 23:00") + timedelta(minutes=minutes)
                following = cron.next_after(stood)
                assert following is not None
                assert following > stood


def changing_twice(offsets: tuple[int, int, int], *changes: datetime) -> ZoneInfo:
    """Make a zone as no country has yet, in the format of compiled zone data."""
    counts = pack(">6l", 0, 0, 0, len(changes), len(offsets), 2)
    times = pack(">2l", *(int(change.timestamp()) for change in changes))
    kinds = b"".join(pack(">lbb", offset * 3_600, 0, 0) for offset in offsets)
    return ZoneInfo.from_file(
        BytesIO(b"TZif" + bytes(16) + counts + times + bytes([1, 2]) + kinds + b"X\0")
    )


@pytest.mark.requirement("S08")
def test_expression_with_only_skipped_times_is_rejected() -> None:
    kept = Cron.parse("30 2 * MAR L7", BERLIN)

    assert runs(kept, "2026-03-29 00:00", "2026-03-29 12:00") == ["01:00"]
    with pytest.raises(Exception, match="no date matches"):
        Cron.parse("30 2 * MAR L7", BERLIN, dst_gap=SKIP)
