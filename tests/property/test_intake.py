"""Intake rejects invalid messages without a failure, and passes on valid items unchanged."""

from datetime import UTC, datetime
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st
from tests.fakes.command_check import check

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import COMMANDS, SchedulePut
from harebell.contract.json_codec import encode
from harebell.intake.commands.check import IncomingRequest

NOW = datetime(2026, 11, 20, 14, tzinfo=UTC)

scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=8)
json = st.recursive(
    scalars | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)
clean = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20
)
whens = st.sampled_from(
    [
        {"now": True},
        {"at": "2026-12-25T09:00:00.5+01:00"},
        {"after": "90m", "jitter": "1500ms"},
        {"every": "PT24H", "times": 5, "start": "2026-01-01"},
        {"cron": "H 9 * * 1-5", "timezone": "America/New_York", "dst_gap": "skip"},
    ]
)
payloads = st.fixed_dictionaries({"json": json}) | st.fixed_dictionaries({"text": clean})
targets = st.builds(
    lambda payload: {"http": {"url": "https://acme.example/hook", **payload}}, payloads
) | st.builds(lambda args: {"task": {"name": "t", "args": args}}, st.dictionaries(clean, json))
puts = st.fixed_dictionaries(
    {"key": clean, "when": whens, "target": targets},
    optional={
        "name": clean,
        "priority": st.integers(1, 10),
        "metadata": st.dictionaries(clean, json),
    },
)
verbs = st.sampled_from([*COMMANDS, "schedule.explode", ""])
changed_puts = puts.flatmap(
    lambda put: st.builds(
        lambda name, value: {**put, name: value},
        st.sampled_from([*SchedulePut.model_fields, "class", "colour"]),
        json,
    )
)


@given(body=st.binary(max_size=64), routing_key=st.text(max_size=40))
def test_check_rejects_arbitrary_bytes(body: bytes, routing_key: str) -> None:
    result = check(IncomingRequest(routing_key=routing_key, body=body), accepted_at=NOW)

    assert result.is_rejected


@given(items=st.lists(json | changed_puts, min_size=1, max_size=5), verb=verbs)
def test_check_accepts_or_rejects_each_item(items: list[Any], verb: str) -> None:
    body = orjson.dumps(items)
    request = IncomingRequest(routing_key=f"acme.{verb}", body=body, message_id="m")

    commands = check(request, accepted_at=NOW).accepted

    if not commands.single:
        assert [item.index for item in commands.items] == list(range(len(items)))
    for item in commands.items:
        assert (item.rejection is None) == (item.body is not None)
        assert item.rejection is None or item.rejection.error.reason


@given(put=puts)
def test_accepted_put_equals_the_sent_put(put: dict[str, Any]) -> None:
    request = IncomingRequest(routing_key="acme.schedule.put", body=orjson.dumps(put))
    result = check(request, accepted_at=NOW)
    if result.is_rejected:  # a payload contains a NUL character
        assert result.rejections[0].response.error.code == "nul_character"
        return

    received = AcceptedCommands.model_validate_json(encode(result.accepted))

    sent = SchedulePut.model_validate(put)
    arrived = SchedulePut.model_validate(received.items[0].body)
    assert arrived == sent
    assert arrived.fingerprint() == sent.fingerprint()
