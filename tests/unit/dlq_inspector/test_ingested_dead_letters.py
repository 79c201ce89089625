"""What arrives becomes letters: ours by their words, anything else as it is."""

import base64
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.dead_letter import AttemptRecord, DeadMessage, DeadRun
from harebell.contract.ids import dead_run_id, run_id
from harebell.contract.json_codec import encode_all
from harebell.dlq_inspector.model.dead_letter import (
    MAX_KEPT,
    DeadLetterKind,
    IncomingDeadLetter,
    dead_letters_of,
)

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEDULE = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
RUN_DEAD = "harebell.run.dead.v1"
MESSAGE_DEAD = "harebell.message.dead.v1"


def dead_run(*, replay_number: int = 0, error: str = "503") -> DeadRun:
    return DeadRun(
        run_id=run_id(SCHEDULE, NOW),
        tenant="acme",
        schedule_id=SCHEDULE,
        scheduled_for=NOW,
        key="report",
        version=1,
        replay_number=replay_number,
        reason="attempts_exhausted",
        error_code="http_503",
        error=error,
        dead_at=NOW,
        target={"http": {"url": "https://acme.example/"}},
        attempts=[
            AttemptRecord(replay_number=replay_number, number=1, finished_at=NOW, outcome="failed")
        ],
    )


def dead_message(*, queue: str = "harebell.intake", key: str = "acme.schedule.put") -> DeadMessage:
    return DeadMessage(
        queue=queue,
        routing_key=key,
        reason="not_json",
        error="not JSON",
        dead_at=NOW,
        headers={"colour": "red"},
        body=base64.b64encode(b"\x00rubbish").decode(),
    )


def arrival(
    body: bytes, type_: str | None = None, headers: Mapping[str, Any] | None = None, key: str = ""
) -> IncomingDeadLetter:
    return IncomingDeadLetter(body, type_, key, "m-1", headers or {})


def test_a_dead_run_is_kept_under_an_id_of_its_run_and_series() -> None:
    [letter] = dead_letters_of(arrival(encode_all([dead_run()]), RUN_DEAD), NOW)

    assert letter.kind is DeadLetterKind.RUN
    assert letter.id == dead_run_id(run_id(SCHEDULE, NOW), 1)
    assert (letter.tenant, letter.key, letter.attempts) == ("acme", "report", 1)
    assert letter.payload["target"] == {"http": {"url": "https://acme.example/"}}
    assert letter.root_id is None


def test_a_run_that_died_again_is_linked_to_its_first_letter() -> None:
    [letter] = dead_letters_of(arrival(encode_all([dead_run(replay_number=3)]), RUN_DEAD), NOW)

    assert letter.id == dead_run_id(run_id(SCHEDULE, NOW), 3)
    assert letter.root_id == dead_run_id(run_id(SCHEDULE, NOW), 1)


def test_a_nul_in_a_story_does_not_keep_it_from_being_stored() -> None:
    [letter] = dead_letters_of(arrival(encode_all([dead_run(error="a\0b")]), RUN_DEAD), NOW)

    assert letter.kind is DeadLetterKind.RUN
    assert letter.error == "a\ufffdb"
    assert b"\\u0000" not in orjson.dumps(letter.payload)


def test_a_lone_surrogate_is_no_json_and_is_kept_as_it_is() -> None:
    body = encode_all([dead_run()]).replace(b"503", b"\\ud800")

    [letter] = dead_letters_of(arrival(body, RUN_DEAD), NOW)

    assert (letter.kind, letter.body) == (DeadLetterKind.MESSAGE, body)


@pytest.mark.parametrize("replay_number", [-1, 2**31])
def test_a_dead_run_that_is_none_is_kept_as_a_message(replay_number: int) -> None:
    [letter] = dead_letters_of(
        arrival(encode_all([dead_run(replay_number=replay_number)]), RUN_DEAD), NOW
    )

    assert letter.kind is DeadLetterKind.MESSAGE
    assert letter.reason == "unreadable"


def test_one_bad_item_spoils_no_other() -> None:
    good = orjson.loads(encode_all([dead_run()]))

    good_one, bad_one = dead_letters_of(
        arrival(orjson.dumps([*good, {"run_id": 7}]), RUN_DEAD), NOW
    )

    assert good_one.kind is DeadLetterKind.RUN
    assert (bad_one.kind, bad_one.body) == (DeadLetterKind.MESSAGE, b'{"run_id":7}')


def test_a_dead_message_keeps_its_bytes_and_belongs_to_its_publisher() -> None:
    [letter] = dead_letters_of(arrival(encode_all([dead_message()]), MESSAGE_DEAD), NOW)

    assert (letter.kind, letter.tenant, letter.body) == (
        DeadLetterKind.MESSAGE,
        "acme",
        b"\x00rubbish",
    )
    assert (letter.reason, letter.error) == ("not_json", "not JSON")
    assert letter.payload["headers"] == {"colour": "red"}


@pytest.mark.parametrize(
    ("queue", "key", "tenant"),
    [
        ("harebell.intake", "acme.schedule.put", "acme"),
        ("harebell.intake", "Not A Tenant.schedule.put", "default"),
        ("harebell.intake", "acme", "default"),
        ("harebell.dlq", "dlq", "default"),
        ("harebell.dlq", "acme.dlq.list", "acme"),
        ("harebell.work.acme.normal", "acme.normal", "default"),  # a pool is no tenant
    ],
)
def test_a_message_goes_to_the_desk_of_its_tenant_or_of_default(
    queue: str, key: str, tenant: str
) -> None:
    dead = dead_message(queue=queue, key=key)

    [letter] = dead_letters_of(arrival(encode_all([dead]), MESSAGE_DEAD), NOW)

    assert letter.tenant == tenant


def test_what_the_broker_dead_lettered_tells_where_and_why() -> None:
    died = {"queue": "harebell.intake", "reason": "delivery_limit", "count": 1, "time": NOW}
    headers = {"x-death": [died, {"queue": "older", "reason": "expired"}], "raw": b"\xff"}

    [letter] = dead_letters_of(arrival(b"{", None, headers, "acme.schedule.put"), NOW)

    assert (letter.reason, letter.tenant, letter.body) == ("delivery_limit", "acme", b"{")
    assert letter.payload["queue"] == "harebell.intake"
    assert letter.payload["headers"]["raw"] == "\\xff"
    assert letter.payload["headers"]["x-death"][0]["time"] == "2026-11-21T12:00:00Z"


def test_a_long_body_keeps_its_beginning_and_says_how_long_it_was() -> None:
    [letter] = dead_letters_of(arrival(b"x" * (MAX_KEPT + 1)), NOW)

    assert letter.body == b"x" * MAX_KEPT
    assert letter.payload["size"] == MAX_KEPT + 1


def test_the_same_message_twice_has_the_same_id() -> None:
    [first] = dead_letters_of(arrival(b"rubbish"), NOW)
    [again] = dead_letters_of(arrival(b"rubbish"), NOW)
    [other] = dead_letters_of(arrival(b"other"), NOW)

    assert first.id == again.id != other.id


values = st.recursive(
    st.none()
    | st.booleans()
    | st.text()
    | st.binary()
    | st.integers()
    | st.floats()
    | st.decimals()
    | st.datetimes(timezones=st.none() | st.just(UTC)),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
names = st.sampled_from(["queue", "reason", "time", "count"])
deaths = st.fixed_dictionaries({"x-death": st.lists(st.dictionaries(names, values))})
ours = st.sampled_from([dead_run().model_dump(mode="json"), dead_message().model_dump(mode="json")])
broken = st.builds(lambda item, name, value: {**item, name: value}, ours, st.text(), values) | (
    st.builds(
        lambda item, place, value: {**item, sorted(item)[place % len(item)]: value},
        ours,
        st.integers(min_value=0),
        values,
    )
)
bodies = st.binary() | st.lists(broken | values, max_size=3).map(
    lambda items: json.dumps(items, default=str).encode(errors="surrogatepass")
)


@given(
    body=bodies,
    type_=st.sampled_from([None, RUN_DEAD, MESSAGE_DEAD]),
    headers=st.dictionaries(st.text(), values) | deaths,
    key=st.text(),
)
def test_anything_at_all_becomes_letters_that_can_be_stored(
    body: bytes, type_: str | None, headers: dict[str, Any], key: str
) -> None:
    kept = dead_letters_of(arrival(body, type_, headers, key), NOW)

    assert kept
    for letter in kept:
        story = orjson.dumps(letter.payload)
        assert b"\\u0000" not in story
        for told in (letter.tenant, letter.reason, letter.error, letter.error_code, letter.key):
            assert b"\0" not in (told or "").encode()


@pytest.mark.parametrize("depth", [100, 500, 5_000])
def test_what_is_nested_without_end_is_kept(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    body = encode_all([dead_run()]).replace(b'"https://acme.example/"', deep)

    for type_ in (RUN_DEAD, MESSAGE_DEAD):
        assert dead_letters_of(arrival(body, type_), NOW)
