"""Whatever is thrown at the door: it never breaks, and what it lets in comes out as it went in."""

from datetime import UTC, datetime
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.commands import COMMANDS, SchedulePut
from harebell.contract.json_codec import encode
from harebell.intake.commands.check import IncomingRequest, check

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
twisted = puts.flatmap(
    lambda put: st.builds(
        lambda name, value: {**put, name: value},
        st.sampled_from([*SchedulePut.model_fields, "class", "colour"]),
        json,
    )
)


@given(body=st.binary(max_size=64), routing_key=st.text(max_size=40))
def test_bytes_are_refused_and_never_break_it(body: bytes, routing_key: str) -> None:
    checked = check(IncomingRequest(routing_key=routing_key, body=body), accepted_at=NOW)

    assert checked.is_rejected


@given(items=st.lists(json | twisted, min_size=1, max_size=5), verb=verbs)
def test_every_item_is_either_taken_or_refused(items: list[Any], verb: str) -> None:
    body = orjson.dumps(items)
    request = IncomingRequest(routing_key=f"acme.{verb}", body=body, message_id="m")
    change = check(request, accepted_at=NOW).accepted

    if not change.single:
        assert [item.index for item in change.items] == list(range(len(items)))
    for item in change.items:
        assert (item.rejection is None) == (item.body is not None)
        assert item.rejection is None or item.rejection.error.reason


@given(put=puts)
def test_what_is_let_in_is_what_was_sent(put: dict[str, Any]) -> None:
    request = IncomingRequest(routing_key="acme.schedule.put", body=orjson.dumps(put))
    checked = check(request, accepted_at=NOW)
    if checked.is_rejected:  # NUL somewhere in a payload
        assert checked.rejections[0].response.error.code == "nul_character"
        return

    received = AcceptedCommands.model_validate_json(encode(checked.accepted))

    sent, arrived = (
        SchedulePut.model_validate(put),
        SchedulePut.model_validate(received.items[0].body),
    )
    assert arrived == sent
    assert arrived.fingerprint() == sent.fingerprint()
