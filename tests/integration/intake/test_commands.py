"""Commands on a real broker: passed on as changes, in order, or answered with field and reason."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.integration.intake.conftest import Street

from harebell.contract.commands import SchedulePut
from harebell.contract.ids import schedule_id
from harebell.messaging.topology.bus import DLQ

pytestmark = [pytest.mark.broker, pytest.mark.postgres]

HOOK = {"http": {"url": "http://127.0.0.1:8080/hook"}}
DAILY = {"key": "daily", "when": {"cron": "0 9 * * *"}, "target": HOOK}
BAD = {"key": "bad", "when": {"cron": "75 9 * * *"}, "target": HOOK}


async def test_a_good_command_comes_to_the_ticker_as_a_change(intake: Street) -> None:
    await intake.send("schedule.put", DAILY, message_id="m-1")

    change = await intake.change()

    assert (change.tenant, change.verb, change.single) == ("acme", "schedule.put", True)
    assert (change.reply_to, change.correlation_id) == (intake.answers.name, "c-1")
    assert abs(datetime.now(UTC) - change.accepted_at) < timedelta(minutes=1)
    (item,) = change.items
    assert (item.request_id, item.schedule_id) == ("m-1", schedule_id("acme", "daily"))
    assert SchedulePut.model_validate(item.body).fingerprint() == (
        SchedulePut.model_validate(DAILY).fingerprint()
    )


async def test_a_bad_command_is_answered_and_told_and_goes_no_further(intake: Street) -> None:
    await intake.send("schedule.put", BAD, message_id="m-1")

    answer = await intake.answer()
    (event,) = await intake.told()

    assert answer["ok"] is False
    assert (answer["error"]["code"], answer["error"]["field"]) == ("invalid_cron", "when.cron")
    assert (event["type"], event["subject"]) == ("harebell.schedule.rejected.v1", "bad")
    assert event["data"]["error"] == answer["error"]
    assert await intake.waiting() == {}


async def test_refused_items_travel_with_the_good_ones(intake: Street) -> None:
    await intake.send("schedule.put", [DAILY, BAD])

    change = await intake.change()
    (event,) = await intake.told()

    good, bad = change.items
    assert good.rejection is None
    assert bad.rejection is not None
    assert bad.rejection.error.field == "[1].when.cron"
    assert event["data"]["error"]["field"] == "[1].when.cron"
    assert await intake.waiting() == {}


async def test_an_array_without_a_good_item_is_answered_item_by_item(intake: Street) -> None:
    await intake.send("schedule.put", [BAD, {**BAD, "nmae": "typo"}])

    answers = await intake.answer()

    assert [answer["error"]["code"] for answer in answers] == ["invalid_cron", "unknown_field"]
    assert await intake.waiting() == {}


async def test_what_is_not_json_is_answered_and_kept_where_a_person_can_see_it(
    intake: Street,
) -> None:
    await intake.send("schedule.put", b"{when: now}", message_id="m-1")

    answer = await intake.answer()
    dead = await intake.dead()

    assert answer["error"]["code"] == dead["reason"] == "not_json"
    assert (dead["queue"], dead["message_id"]) == ("harebell.intake", "m-1")


async def test_a_poisonous_message_stops_nothing(intake: Street) -> None:
    await intake.send("schedule.put", b"\xff\x00")
    await intake.send("no.such.verb", {})
    await intake.send("schedule.put", DAILY)

    change = await intake.change()

    assert change.items[0].schedule_id == schedule_id("acme", "daily")


async def test_commands_are_passed_on_in_their_order(intake: Street) -> None:
    keys = [f"key-{number}" for number in range(400)]
    for key in keys:
        await intake.send("schedule.pause", {"key": key}, message_id=key)

    changes = [await intake.change() for _ in keys]

    assert [change.items[0].request_id for change in changes] == keys
    accepted = [change.accepted_at for change in changes]
    assert accepted == sorted(accepted)


async def test_commands_about_dead_letters_go_to_the_desk(intake: Street) -> None:
    letter = "5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11"
    await intake.send("dlq.replay", {"ids": [letter]})

    change = await intake.change(DLQ.name)

    assert (change.verb, change.items[0].body) == ("dlq.replay", {"ids": [letter]})


async def test_a_requester_that_has_gone_holds_nothing_up(intake: Street) -> None:
    await intake.send("schedule.put", BAD, reply_to="gone")
    await intake.send("schedule.put", BAD, correlation_id="c-2")

    answer = await intake.answer()

    assert answer["error"]["code"] == "invalid_cron"


async def test_no_answer_is_sent_to_a_queue_of_ours(intake: Street) -> None:
    await intake.send("schedule.put", BAD, reply_to="harebell.ticker")
    await intake.send("schedule.put", DAILY, reply_to="harebell.dead")

    change = await intake.change()

    assert change.reply_to is None
    assert await intake.waiting() == {}


async def test_a_command_to_many_goes_to_the_ticker_by_its_request(intake: Street) -> None:
    select = {"select": {"tag": "reports"}, "until": "2099-01-01T00:00:00Z"}
    await intake.send("schedule.pause", select, message_id="upgrade-7")
    await intake.send("schedule.resume", {"receipt": "upgrade-7"}, message_id="over")

    pause, resume = await intake.change(), await intake.change()

    assert (pause.items[0].schedule_id, pause.items[0].request_id) == (None, "upgrade-7")
    assert pause.items[0].body == select
    assert resume.items[0].body == {"receipt": "upgrade-7"}


@pytest.mark.requirement("S09")
async def test_a_schedule_without_a_timing_is_passed_on_with_its_tenants(intake: Street) -> None:
    await intake.send("schedule.put", {"key": "often", "target": DAILY["target"]})

    change = await intake.change()

    assert change.items[0].body["when"]["every"] == "5m"
