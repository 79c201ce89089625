"""Calendars with the real services: excluded times, changes of calendars, previews and reasons."""

from datetime import UTC, date, datetime, timedelta

import pytest
from tests.acceptance.recording_target import Target
from tests.acceptance.stack import Tenant
from tests.rig.polling import until

from harebell.client import CommandRejected
from harebell.contract.calendar import WEEKDAYS
from harebell.contract.types import instant_text

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

EVERY_SECOND = {"cron": "* * * * * *"}
DAILY = {"cron": "0 9 * * *", "timezone": "Europe/Berlin"}
BEFORE = datetime(2049, 12, 23, 12, tzinfo=UTC)
WEEKEND = [{"weekdays": ["sat", "sun"]}]


def days_around(today: date) -> list[str]:
    """Return a range of days that contains the whole test."""
    return [f"{today - timedelta(days=1)}/{today + timedelta(days=1)}"]


@pytest.mark.requirement("ASK-9")
async def test_changed_calendar_starts_and_stops_the_planned_runs_and_counts_the_schedules(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    today = datetime.now(UTC).date()
    created = await client.put_calendar("closed", days=days_around(today))
    for key in ("first", "second"):
        await tenant.put(key, EVERY_SECOND, target.http(key), calendars={"exclude": ["closed"]})
    other = await client.put_calendar("other", days=["2051-01-02"])
    before = await tenant.runs()

    opened = await client.put_calendar("closed", days=["2051-01-02"])

    async def has_succeeded() -> bool:
        runs = await tenant.runs("succeeded")
        return len({run["schedule_id"] for run in runs}) == 2

    await until(has_succeeded, what="a run of both schedules")
    unchanged = await client.put_calendar("closed", days=["2051-01-02"])
    closed = await client.put_calendar("closed", days=days_around(today))
    staged = await tenant.runs("staged")
    for key in ("first", "second"):
        await client.cancel(key=key)  # other tests count the schedules of every tenant

    assert (created.status, created.version, created.affected) == ("created", 1, 0)
    assert (other.status, other.affected) == ("created", 0)
    assert before == []
    assert (opened.status, opened.version, opened.affected) == ("updated", 2, 2)
    assert (unchanged.status, unchanged.version, unchanged.affected) == ("unchanged", 2, 0)
    assert (closed.status, closed.version, closed.affected) == ("updated", 3, 2)
    changed_at = (await client.calendar("closed")).changed_at
    assert [run for run in staged if run["scheduled_for"] > changed_at] == []


@pytest.mark.requirement("ASK-9")
async def test_preview_and_why_name_the_calendar_that_excludes_a_time(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    await client.put_calendar("holidays", days=["2049-12-24/2049-12-26"], timezone="Europe/Berlin")
    calendars = {"exclude": ["holidays"]}
    await tenant.put("daily", DAILY, target.http("daily"), calendars=calendars)
    excluded = datetime(2049, 12, 25, 8, tzinfo=UTC)

    stored = await client.preview(key="daily", after=BEFORE, count=2)
    definition = {"when": DAILY, "target": target.http("daily"), "calendars": calendars}
    unstored = await client.preview(definition=definition, after=BEFORE, count=2)
    why = await client.why(key="daily", at=excluded)
    shown = await client.schedule(key="daily")

    first, second = stored.instants
    assert [instant_text(each.at) for each in (first, second)] == [
        "2049-12-27T08:00:00Z",
        "2049-12-28T08:00:00Z",
    ]
    assert [(note.about, "holidays" in note.text) for note in first.notes] == [("calendar", True)]
    assert second.notes == []
    assert [each.at for each in unstored.instants] == [first.at, second.at]
    assert (why.verdict, why.reason) == ("will_not_run", "excluded_by_calendar")
    assert why.text == "Version 1 of the calendar holidays excludes this time."
    assert why.after == first.at
    assert shown.definition["calendars"]["exclude"] == ["holidays"]
    assert "pinned_calendars" not in shown.definition


@pytest.mark.requirement("ASK-9")
async def test_included_calendar_permits_only_its_hours(tenant: Tenant, target: Target) -> None:
    client = tenant.harebell
    hours = [{"weekdays": ["mon", "tue"], "from": "09:00", "to": "11:00"}]
    await client.put_calendar("hours", weekly=hours)
    when = {"cron": "0 * * * *"}
    calendars = {"include": ["hours"]}
    await tenant.put("hourly", when, target.http("hourly"), calendars=calendars)

    preview = await client.preview(key="hourly", after=BEFORE, count=4)

    assert [instant_text(each.at) for each in preview.instants] == [
        "2049-12-27T09:00:00Z",
        "2049-12-27T10:00:00Z",
        "2049-12-28T09:00:00Z",
        "2049-12-28T10:00:00Z",
    ]


@pytest.mark.requirement("ASK-9")
async def test_pending_version_follows_the_changed_calendar(tenant: Tenant, target: Target) -> None:
    client = tenant.harebell
    await client.put_calendar("holidays", days=["2051-01-02"])
    await tenant.put("daily", DAILY, target.http("daily"))
    effective_at = datetime(2049, 12, 1, tzinfo=UTC)
    await client.patch(
        {"calendars": {"exclude": ["holidays"]}}, key="daily", effective_at=effective_at
    )

    changed = await client.put_calendar("holidays", days=["2049-12-24/2049-12-26"])
    preview = await client.preview(key="daily", after=BEFORE, count=1)

    assert (changed.affected, changed.rejected) == (1, {})
    assert instant_text(preview.instants[0].at) == "2049-12-27T08:00:00Z"


@pytest.mark.requirement("ASK-9")
async def test_calendar_in_use_is_not_deleted_and_an_unknown_one_is_rejected(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    await client.put_calendar("weekend", weekly=WEEKEND, note="closed")
    when = {"every": "1h"}
    await tenant.put("used", when, target.http("used"), calendars={"exclude": ["weekend"]})

    with pytest.raises(CommandRejected) as in_use:
        await client.delete_calendar("weekend")
    with pytest.raises(CommandRejected) as unknown:
        await tenant.put("bad", when, target.http("bad"), calendars={"include": ["nowhere"]})
    listed = await client.calendars()
    await client.patch({"calendars": None}, key="used")
    deleted = await client.delete_calendar("weekend")
    again = await client.put_calendar("weekend", days=["2051-01-02"])

    assert in_use.value.code == "calendar_in_use"
    assert (unknown.value.code, unknown.value.field) == (
        "unknown_calendar",
        "calendars.include[0]",
    )
    assert [(each.name, each.schedules, each.note) for each in listed] == [("weekend", 1, "closed")]
    assert (deleted.status, deleted.version) == ("deleted", 2)
    assert (again.status, again.version) == ("created", 3)


@pytest.mark.requirement("ASK-9")
async def test_run_of_an_excluded_time_starts_on_the_next_open_day(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    at = (datetime.now(UTC) + timedelta(seconds=5)).replace(microsecond=0)
    origin = at - timedelta(days=1)
    await client.put_calendar("closed", days=[str(origin.date())])
    when = {"cron": f"{origin:%-S %-M %-H %-d %-m} *"}
    calendars = {"exclude": ["closed"], "on_excluded": "next"}
    await tenant.put("moved", when, target.http("moved"), calendars=calendars)
    preview = await client.preview(key="moved", after=at - timedelta(minutes=1), count=1)

    async def has_succeeded() -> bool:
        return bool(await tenant.runs("succeeded"))

    await until(has_succeeded, what="the moved run")
    runs = await tenant.runs()
    why = await client.why(key="moved", at=at)

    text = f"The calendar closed excludes {instant_text(origin)}, and its run moves to this time."
    assert [run["scheduled_for"] for run in runs] == [at]
    assert [(each.at, each.notes[0].text) for each in preview.instants] == [(at, text)]
    assert (why.verdict, why.notes) == ("ran", [text])


@pytest.mark.requirement("ASK-9")
async def test_preview_and_why_follow_a_changed_direction_of_moves(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    await client.put_calendar("holidays", days=["2049-12-24/2049-12-26"], timezone="Europe/Berlin")
    when = {**DAILY, "cron": "0 9 25 12 *"}
    calendars = {"exclude": ["holidays"], "on_excluded": "next"}
    await tenant.put("yearly", when, target.http("yearly"), calendars=calendars)
    excluded = datetime(2049, 12, 25, 8, tzinfo=UTC)
    early = BEFORE - timedelta(hours=12)

    later = await client.preview(key="yearly", after=early, count=1)
    why_later = await client.why(key="yearly", at=excluded)
    await client.patch({"calendars": {**calendars, "on_excluded": "previous"}}, key="yearly")
    earlier = await client.preview(key="yearly", after=early, count=1)
    why_earlier = await client.why(key="yearly", at=earlier.instants[0].at)
    with pytest.raises(CommandRejected) as frequent:
        await client.patch({"when": {"cron": "0 * * * *"}}, key="yearly")

    assert instant_text(later.instants[0].at) == "2049-12-27T08:00:00Z"
    assert (why_later.verdict, why_later.reason) == ("will_not_run", "excluded_by_calendar")
    assert why_later.text == (
        "Version 1 of the calendar holidays excludes this time, "
        "and its run moves to 2049-12-27T08:00:00Z."
    )
    assert instant_text(earlier.instants[0].at) == "2049-12-23T08:00:00Z"
    assert why_earlier.verdict == "will_run"
    assert "excludes 2049-12-25T08:00:00Z" in why_earlier.notes[0]
    assert frequent.value.code == "too_frequent"


@pytest.mark.long
@pytest.mark.requirement("ASK-9")
async def test_patch_that_excludes_a_calendar_starts_runs_before_the_planned_ones(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    # The ticker stages these runs soon, as a whole minute that is 45 to 105 s away.
    opening = datetime.now(UTC) + timedelta(seconds=105)
    closing = opening + timedelta(hours=2)
    hours = {"weekdays": [*WEEKDAYS], "from": f"{opening:%H:%M}", "to": f"{closing:%H:%M}"}
    await client.put_calendar("later", weekly=[hours])
    await tenant.put("both", EVERY_SECOND, target.http("both"), calendars={"include": ["later"]})

    async def is_staged() -> bool:
        return bool(await tenant.runs("staged"))

    await until(is_staged, what="a staged run of the included hours")

    await client.patch({"calendars": {"exclude": ["later"], "include": []}}, key="both")

    async def has_succeeded() -> bool:
        return bool(await tenant.runs("succeeded"))

    await until(has_succeeded, what="a run before the excluded hours")
    runs = await tenant.runs("succeeded")
    await client.cancel(key="both")
    assert runs[0]["scheduled_for"] < opening.replace(second=0, microsecond=0)


@pytest.mark.requirement("ASK-9")
async def test_preview_and_why_name_the_open_day_of_the_month(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    await client.put_calendar("weekend", weekly=WEEKEND)
    calendars = {"exclude": ["weekend"], "open_day": -1}
    await tenant.put("closing", {"cron": "0 9 * * *"}, target.http("closing"), calendars=calendars)
    other = datetime(2049, 12, 29, 9, tzinfo=UTC)

    preview = await client.preview(key="closing", after=BEFORE, count=2)
    why = await client.why(key="closing", at=other)

    first, second = preview.instants
    assert [instant_text(each.at) for each in (first, second)] == [
        "2049-12-31T09:00:00Z",
        "2050-01-31T09:00:00Z",
    ]
    words = "open day 1 from the end of its month by weekend"
    assert [note.text for note in first.notes] == [f"The day is {words}."]
    assert (why.verdict, why.reason) == ("will_not_run", "other_open_day")
    assert (why.text, why.after) == (f"The day is not {words}.", first.at)


@pytest.mark.requirement("ASK-9")
async def test_no_attempt_starts_within_a_blackout_until_its_calendar_changes(
    tenant: Tenant, target: Target
) -> None:
    client = tenant.harebell
    await client.put_calendar("freeze", days=days_around(datetime.now(UTC).date()))
    calendars = {"blackout": ["freeze"]}
    await tenant.put("held", {"now": True}, target.http("held"), calendars=calendars)
    await client.trigger(key="held")

    async def is_held() -> bool:
        return [run["reason"] for run in await tenant.runs("staged")].count("blackout") == 1

    await until(is_held, what="the triggered run with the reason blackout")
    waiting = await tenant.runs()
    triggered = next(run for run in waiting if run["reason"] == "blackout")
    why = await client.why(key="held", at=triggered["scheduled_for"])
    calls = target.calls("held")
    await client.put_calendar("freeze", days=["2040-01-01"])
    runs = await tenant.until_runs(2, "succeeded")

    assert calls == []
    assert why.verdict == "will_run"
    assert "freeze" in why.text
    assert len(runs) == len(await tenant.runs()) == len(target.calls("held")) == 2
