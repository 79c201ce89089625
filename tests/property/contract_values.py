"""Generators of contract values: JSON that PostgreSQL can store, instants and definitions."""

import base64
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from hypothesis import strategies as st

from harebell.contract.amqp_names import Lane
from harebell.contract.target_headers import is_read_by_broker
from harebell.contract.types import EARLIEST, LATEST, MAX_DURATION, duration_text, truncate_ms

SMALLEST: Final = -(2**63)
LARGEST: Final = 2**64 - 1

# JSON contains no lone surrogates, and PostgreSQL stores no NUL character.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=20)
names = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=20).filter(
    lambda name: not is_read_by_broker(name)
)
numbers = st.integers(SMALLEST, LARGEST)
scalars = (
    st.none() | st.booleans() | numbers | st.floats(allow_nan=False, allow_infinity=False) | texts
)
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
instants = st.datetimes(
    EARLIEST.replace(tzinfo=None),
    (LATEST - timedelta(milliseconds=1)).replace(tzinfo=None),
    timezones=st.just(UTC),
).map(truncate_ms)
durations = st.integers(0, MAX_DURATION // timedelta(milliseconds=1)).map(
    lambda ms: timedelta(milliseconds=ms)
)
seconds = st.integers(1, 3600).map(lambda count: timedelta(seconds=count))

bodies = st.one_of(
    st.just({}),
    json_values.map(lambda value: {"json": value}),
    texts.map(lambda text: {"text": text}),
    st.binary(max_size=64).map(lambda data: {"base64": base64.b64encode(data).decode()}),
)
targets = st.one_of(
    bodies.map(lambda body: {"http": {"url": "https://acme.example/hook", **body}}),
    st.builds(
        lambda body, headers: {"amqp": {"exchange": "acme.jobs", "headers": headers, **body}},
        bodies,
        st.dictionaries(
            names, texts | st.booleans() | st.integers(SMALLEST, -SMALLEST - 1), max_size=3
        ),
    ),
    st.dictionaries(texts, json_values, max_size=3).map(
        lambda args: {"task": {"name": "acme.report", "args": args}}
    ),
)
whens = st.one_of(
    st.just({"now": True}),
    instants.map(lambda at: {"at": at.isoformat()}),
    durations.map(lambda wait: {"after": duration_text(wait)}),
    seconds.map(lambda gap: {"every": duration_text(gap)}),
    st.just({"cron": "0 9 * * 1-5", "timezone": "Europe/Berlin"}),
)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    """Return a definition in JSON with some of its optional fields."""
    optional = {
        "key": names,
        "name": names,
        "priority": st.integers(1, 10),
        "timeout": seconds.map(duration_text),
        "expires_after": durations.map(duration_text),
        "retry": st.integers(1, 1000).map(lambda count: {"max_attempts": count}),
        "rate_limit": st.builds(
            lambda per, starts: {"per": per, "starts": starts, "within": "1m"},
            st.sampled_from(["schedule", "target"]),
            st.integers(1, 1000),
        ),
        "tags": st.lists(names, max_size=3),
        "metadata": st.dictionaries(texts, json_values, max_size=3),
    }
    return draw(st.fixed_dictionaries({"when": whens, "target": targets}, optional=optional))


tickets = st.fixed_dictionaries(
    {
        "schedule_id": st.uuids().map(str),
        "scheduled_for": instants.map(datetime.isoformat),
        "due_at": instants.map(datetime.isoformat),
        "expires_at": st.none() | instants.map(datetime.isoformat),
        "seq": st.integers(1, 2**31 - 1),
        "version": st.integers(1, 2**31 - 1),
        "replay_number": st.integers(0, 100),
        "pool": names,
        "lane": st.sampled_from([lane.value for lane in Lane]),
        "priority": st.integers(1, 10),
        "override": st.none() | st.dictionaries(texts, json_values, max_size=3),
        "run_spec": st.builds(
            lambda tenant, key, target: {"tenant": tenant, "key": key, "target": target},
            names,
            st.none() | names,
            targets,
        ),
    }
)
