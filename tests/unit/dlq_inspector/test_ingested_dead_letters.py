"""Messages of the queue `harebell.dead` become dead letters, whatever they contain."""

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
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
    MAX_STORED_BODY,
    DeadLetterKind,
    IncomingDeadLetter,
    dead_letters_of,
    raw_dead_letter,
)
from harebell.dlq_inspector.model.owner import tenant_of_undelivered
from harebell.domain.tenant_policy import TenantPolicies

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SCHEDULE = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
RUN_DEAD = "harebell.run.dead.v1"
MESSAGE_DEAD = "harebell.message.dead.v1"
TICKETS = "harebell.ticket.batch.v1"
COMMANDS = "harebell.accepted_commands.v1"
WORK = "harebell.work.acme.normal"


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


def incoming(
    body: bytes, type_: str | None = None, headers: Mapping[str, Any] | None = None, key: str = ""
) -> IncomingDeadLetter:
    return IncomingDeadLetter(
        body=body, type=type_, routing_key=key, message_id="m-1", headers=headers or {}
    )


def test_dead_run_has_an_id_of_its_run_and_replay_number() -> None:
    [dead_letter] = dead_letters_of(incoming(encode_all([dead_run()]), RUN_DEAD), NOW)

    assert dead_letter.kind is DeadLetterKind.RUN
    assert dead_letter.id == dead_run_id("acme", run_id(SCHEDULE, NOW), 0)
    assert (dead_letter.tenant, dead_letter.key, dead_letter.attempts) == ("acme", "report", 1)
    assert dead_letter.payload["target"] == {"http": {"url": "https://acme.example/"}}
    assert dead_letter.root_id is None


def test_dead_run_has_a_root_id_after_a_replay() -> None:
    [dead_letter] = dead_letters_of(
        incoming(encode_all([dead_run(replay_number=3)]), RUN_DEAD), NOW
    )

    assert dead_letter.id == dead_run_id("acme", run_id(SCHEDULE, NOW), 3)
    assert dead_letter.root_id == dead_run_id("acme", run_id(SCHEDULE, NOW), 0)


def test_dead_run_is_storable_if_its_error_contains_nul() -> None:
    [dead_letter] = dead_letters_of(incoming(encode_all([dead_run(error="a\0b")]), RUN_DEAD), NOW)

    assert dead_letter.kind is DeadLetterKind.RUN
    assert dead_letter.error == "a\ufffdb"
    assert b"\\u0000" not in orjson.dumps(dead_letter.payload)


def test_message_with_a_lone_surrogate_becomes_a_raw_dead_letter() -> None:
    body = encode_all([dead_run()]).replace(b"503", b"\\ud800")

    [dead_letter] = dead_letters_of(incoming(body, RUN_DEAD), NOW)

    assert (dead_letter.kind, dead_letter.body) == (DeadLetterKind.MESSAGE, body)


@pytest.mark.parametrize("replay_number", [-1, 2**31])
def test_dead_run_becomes_a_message_if_its_replay_number_is_invalid(replay_number: int) -> None:
    [dead_letter] = dead_letters_of(
        incoming(encode_all([dead_run(replay_number=replay_number)]), RUN_DEAD), NOW
    )

    assert dead_letter.kind is DeadLetterKind.MESSAGE
    assert dead_letter.reason == "unreadable"


def test_invalid_item_does_not_affect_the_other_items() -> None:
    good = orjson.loads(encode_all([dead_run()]))

    good_one, bad_one = dead_letters_of(
        incoming(orjson.dumps([*good, {"run_id": 7}]), RUN_DEAD), NOW
    )

    assert good_one.kind is DeadLetterKind.RUN
    assert (bad_one.kind, bad_one.body) == (DeadLetterKind.MESSAGE, b'{"run_id":7}')


def test_dead_message_has_its_body_and_the_tenant_of_its_publisher() -> None:
    [dead_letter] = dead_letters_of(incoming(encode_all([dead_message()]), MESSAGE_DEAD), NOW)

    assert (dead_letter.kind, dead_letter.tenant, dead_letter.body) == (
        DeadLetterKind.MESSAGE,
        "acme",
        b"\x00rubbish",
    )
    assert (dead_letter.reason, dead_letter.error) == ("not_json", "not JSON")
    assert dead_letter.payload["headers"] == {"colour": "red"}


@pytest.mark.parametrize(
    ("queue", "key", "tenant"),
    [
        ("harebell.intake", "acme.schedule.put", "acme"),
        ("harebell.intake", "Not A Tenant.schedule.put", "harebell"),
        ("harebell.intake", "acme", "harebell"),
        ("harebell.dlq", "dlq", "harebell"),
        ("harebell.dlq", "acme.dlq.list", "acme"),
        ("harebell.work.acme.normal", "acme.normal", "harebell"),  # `acme` is the name of a pool
    ],
)
def test_dead_message_has_the_tenant_of_its_routing_key_or_belongs_to_the_operators(
    queue: str, key: str, tenant: str
) -> None:
    dead = dead_message(queue=queue, key=key)

    [dead_letter] = dead_letters_of(incoming(encode_all([dead]), MESSAGE_DEAD), NOW)

    assert dead_letter.tenant == tenant


def tickets(*tenants: object) -> bytes:
    return orjson.dumps([{"run_spec": {"tenant": tenant}} for tenant in tenants])


@pytest.mark.requirement("P4")
@pytest.mark.parametrize(
    ("queue", "type_", "body", "owners"),
    [
        (WORK, TICKETS, tickets("acme", "acme"), ["acme"]),
        (WORK, TICKETS, tickets("acme", "umbrella", "acme"), ["acme", "umbrella"]),
        (WORK, TICKETS, tickets("acme", 7), ["acme", "harebell"]),
        (WORK, TICKETS, b"[7]", ["harebell"]),
        (WORK, TICKETS, b"[]", ["harebell"]),
        (WORK, TICKETS, b"{", ["harebell"]),
        (WORK, "harebell.ticket.batch.v2", tickets("acme"), ["harebell"]),
        (WORK, None, tickets("acme"), ["harebell"]),
        ("harebell.ticker", COMMANDS, b'{"tenant": "acme"}', ["acme"]),
        ("harebell.ticker", COMMANDS, b'["acme"]', ["harebell"]),
        ("harebell.dlq", COMMANDS, b'{"tenant": "acme"}', ["acme"]),
    ],
)
def test_message_of_a_service_belongs_to_the_tenants_that_it_names(
    queue: str, type_: str | None, body: bytes, owners: list[str]
) -> None:
    died = {"x-death": [{"queue": queue, "reason": "delivery_limit"}]}
    key = "dlq" if queue == "harebell.dlq" else "acme.normal"

    found = dead_letters_of(incoming(body, type_, died, key), NOW)

    assert [each.tenant for each in found] == owners


@pytest.mark.requirement("P4")
def test_body_of_a_user_does_not_name_the_tenant() -> None:
    died = {"x-death": [{"queue": "harebell.intake", "reason": "rejected"}]}
    planted = incoming(tickets("umbrella"), TICKETS, died, "acme.schedule.put")

    [dead_letter] = dead_letters_of(planted, NOW)

    assert dead_letter.tenant == "acme"


def test_returned_dead_letter_keeps_its_queue_and_its_tenant() -> None:
    """The broker adds the death in the queue of dead letters before that in the intake queue."""
    died = {
        "x-death": [
            {"queue": "harebell.dead", "reason": "rejected"},
            {"queue": "harebell.intake", "reason": "delivery_limit"},
        ]
    }

    [dead_letter] = dead_letters_of(incoming(b"{}", None, died, "acme.schedule.put"), NOW)

    assert (dead_letter.tenant, dead_letter.reason) == ("acme", "delivery_limit")
    assert dead_letter.payload["queue"] == "harebell.intake"


@pytest.mark.requirement("P4")
def test_ticket_of_another_tenant_is_in_no_part_of_a_batch() -> None:
    died = {"x-death": [{"queue": WORK, "reason": "delivery_limit"}]}

    acme, umbrella = dead_letters_of(
        incoming(tickets("umbrella", "acme", "umbrella"), TICKETS, died), NOW
    )

    assert (acme.body, umbrella.body) == (tickets("acme"), tickets("umbrella", "umbrella"))


@pytest.mark.requirement("P4")
def test_time_of_death_in_the_future_becomes_the_present() -> None:
    run = dead_run().model_copy(update={"dead_at": NOW + timedelta(days=1)})
    died = {"x-death": [{"queue": "q", "reason": "r", "time": NOW + timedelta(days=1)}]}

    [of_run] = dead_letters_of(incoming(encode_all([run]), RUN_DEAD), NOW)
    [of_message] = dead_letters_of(incoming(b"{", None, died), NOW)

    assert of_run.dead_at == of_message.dead_at == NOW


def test_message_that_the_broker_dead_lettered_has_its_queue_and_reason() -> None:
    died = {"queue": "harebell.intake", "reason": "delivery_limit", "count": 1, "time": NOW}
    headers = {"x-death": [died, {"queue": "older", "reason": "expired"}], "raw": b"\xff"}

    [dead_letter] = dead_letters_of(incoming(b"{", None, headers, "acme.schedule.put"), NOW)

    assert (dead_letter.reason, dead_letter.tenant, dead_letter.body) == (
        "delivery_limit",
        "acme",
        b"{",
    )
    assert dead_letter.payload["queue"] == "harebell.intake"
    assert dead_letter.payload["headers"]["raw"] == "\\xff"
    assert dead_letter.payload["headers"]["x-death"][0]["time"] == "2026-11-21T12:00:00Z"


def test_long_body_is_truncated_and_its_size_is_stored() -> None:
    [dead_letter] = dead_letters_of(incoming(b"x" * (MAX_STORED_BODY + 1)), NOW)

    assert dead_letter.body == b"x" * MAX_STORED_BODY
    assert dead_letter.payload["size"] == MAX_STORED_BODY + 1


def test_dead_letter_has_the_same_id_when_the_message_is_repeated() -> None:
    [first] = dead_letters_of(incoming(b"rubbish"), NOW)
    [second] = dead_letters_of(incoming(b"rubbish"), NOW)
    [other] = dead_letters_of(incoming(b"other"), NOW)

    assert first.id == second.id != other.id


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
valid = st.sampled_from(
    [dead_run().model_dump(mode="json"), dead_message().model_dump(mode="json")]
)
broken = st.builds(lambda item, name, value: {**item, name: value}, valid, st.text(), values) | (
    st.builds(
        lambda item, index, value: {**item, sorted(item)[index % len(item)]: value},
        valid,
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
def test_every_message_becomes_storable_dead_letters(
    body: bytes, type_: str | None, headers: dict[str, Any], key: str
) -> None:
    dead_letters = dead_letters_of(incoming(body, type_, headers, key), NOW)

    assert dead_letters
    for dead_letter in dead_letters:
        assert b"\\u0000" not in orjson.dumps(dead_letter.payload)
        for text in (
            dead_letter.tenant,
            dead_letter.reason,
            dead_letter.error,
            dead_letter.error_code,
            dead_letter.key,
        ):
            assert b"\0" not in (text or "").encode()


@pytest.mark.parametrize("depth", [100, 500, 5_000])
def test_deeply_nested_item_becomes_a_dead_letter(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    body = encode_all([dead_run()]).replace(b'"https://acme.example/"', deep)

    for type_ in (RUN_DEAD, MESSAGE_DEAD):
        assert dead_letters_of(incoming(body, type_), NOW)


@pytest.mark.requirement("P4")
@pytest.mark.parametrize(
    ("queue", "key", "tenant"),
    [
        ("harebell.intake.acme", "umbrella.schedule.put", "acme"),
        ("harebell.queries.acme", "umbrella.schedule.get", "acme"),
        ("harebell.dlq.acme", "dlq", "acme"),
        ("harebell.intake", "umbrella.schedule.put", "umbrella"),
        ("harebell.delayed.orders", "umbrella.any", "harebell"),
        ("harebell.ticker", "umbrella.any", "harebell"),
        ("harebell.dispatcher", "run", "harebell"),
    ],
)
@pytest.mark.parametrize("type_", [RUN_DEAD, MESSAGE_DEAD, TICKETS, COMMANDS, None])
def test_message_that_no_service_published_is_a_dead_message_of_the_tenant_of_its_queue(
    queue: str, key: str, tenant: str, type_: str | None
) -> None:
    body = encode_all([dead_run()] * 500)
    deaths = {"x-death": [{"queue": queue, "reason": "expired", "time": NOW, "count": 1}]}
    received = incoming(body, type_, deaths, key)

    [dead_letter] = dead_letters_of(replace(received, is_trusted=False), NOW)

    assert (dead_letter.kind, dead_letter.tenant) == (DeadLetterKind.MESSAGE, tenant)
    assert (dead_letter.run, dead_letter.reason) == (None, "expired")


@pytest.mark.requirement("P4")
@pytest.mark.parametrize(
    "deaths", [{}, {"x-death": 7}, {"x-death": [{"queue": "harebell.ticker"}]}]
)
def test_message_of_the_queue_of_an_owner_belongs_to_it_whatever_its_headers_say(
    deaths: dict[str, Any],
) -> None:
    received = incoming(encode_all([dead_run()]), RUN_DEAD, deaths, "umbrella.schedule.put")
    received = replace(received, is_trusted=False, owner="acme")

    [dead_letter] = dead_letters_of(received, NOW)

    assert (dead_letter.kind, dead_letter.tenant) == (DeadLetterKind.MESSAGE, "acme")
    assert raw_dead_letter(received, NOW).tenant == "acme"


@pytest.mark.requirement("P4")
@pytest.mark.parametrize(
    ("queue", "tenant"),
    [
        ("harebell.undelivered.acme", "acme"),
        ("harebell.undelivered.delayed", "delayed"),
        ("harebell.undelivered.delayed.orders", "umbrella"),
        ("harebell.undelivered.delayed.unknown", None),
        ("harebell.undelivered", None),
        ("harebell.dead", None),
    ],
)
def test_queue_of_undelivered_messages_names_its_tenant(queue: str, tenant: str | None) -> None:
    policies = TenantPolicies.unrestricted(delayed={"orders": "umbrella"})

    assert tenant_of_undelivered(queue, policies) == tenant


@pytest.mark.parametrize(
    "queue",
    [
        "harebell.undelivered",
        "harebell.undelivered.delayed.orders",
        "harebell.undelivered.acme",
        "harebell.intake.acme",
    ],
)
def test_service_that_gives_up_a_request_names_no_other_tenant(queue: str) -> None:
    """The service reports a message whose headers cannot be read, such as those of a request."""
    reported = dead_message(queue=queue, key="umbrella.schedule.put").model_copy(
        update={"type": COMMANDS, "body": base64.b64encode(b'{"tenant": "umbrella"}').decode()}
    )

    [dead_letter] = dead_letters_of(incoming(encode_all([reported]), MESSAGE_DEAD), NOW)

    assert dead_letter.tenant == ("acme" if queue.endswith("acme") else "harebell")
