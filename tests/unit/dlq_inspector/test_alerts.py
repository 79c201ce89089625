"""The text of an alert states in complete sentences what is wrong, where and since when."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from harebell.contract.events import Event, LivenessEventData, make_event
from harebell.contract.message import parse
from harebell.dlq_inspector.model.alerts import DeadLetterSpike, StalledReplayJob, headline

TWO = datetime(2026, 11, 20, 14, tzinfo=UTC)
ID = UUID("0b6f3cde-6c1f-5f7a-8a49-3c1a4a1f7d12")


def spike(group: UUID | None) -> Event:
    alert = DeadLetterSpike(
        tenant="acme",
        dead_letters=11,
        since=TWO.replace(microsecond=123_000),
        group=group,
        target="http POST https://acme.example",
        error_code="http_503",
    )
    return parse(Event, alert.event(TWO))


@pytest.mark.requirement("S117")
def test_spike_shows_the_largest_group_if_one_is_known() -> None:
    assert headline(spike(ID)) == (
        "The tenant acme has 11 new dead letters since 2026-11-20T14:00:00Z. "
        "Most dead letters have the error http_503 at http POST https://acme.example."
    )
    assert headline(spike(None)) == (
        "The tenant acme has 11 new dead letters since 2026-11-20T14:00:00Z."
    )


@pytest.mark.requirement("S117")
def test_spike_has_the_dead_letters_as_its_subject() -> None:
    event = spike(ID)

    assert (event.subject, event.id) == (
        "dead_letters",
        "dead_letters/2026-11-20T14:00:00Z/dlq.spike",
    )


@pytest.mark.requirement("S117")
def test_stalled_replay_job_shows_the_reason_of_its_pause() -> None:
    alert = StalledReplayJob(
        tenant="acme",
        replay_job_id=ID,
        state="paused",
        reason="version 2 cannot be read",
        since=TWO,
        remaining=40,
        unfinished=0,
    )

    assert headline(parse(Event, alert.event(TWO))) == (
        f"The replay job {ID} of the tenant acme is paused without progress "
        "since 2026-11-20T14:00:00Z. "
        "The job has 40 remaining dead letters and 0 unfinished runs. "
        "The reason of the pause: version 2 cannot be read"
    )


@pytest.mark.requirement("P13")
def test_texts_of_a_tenant_contain_no_markup_and_no_control_characters() -> None:
    alert = DeadLetterSpike(
        tenant="acme",
        dead_letters=11,
        since=TWO,
        group=ID,
        target="task \u202ea\nb",
        error_code="<!channel> <http://evil.example|log in> &lt;",
    )

    text = headline(parse(Event, alert.event(TWO)))

    assert text.endswith(
        "the error &lt;!channel&gt; &lt;http://evil.example|log in&gt; &amp;lt; "
        "at task \\u202ea\\nb."
    )


@pytest.mark.requirement("P13")
def test_headline_escapes_the_text_of_another_service() -> None:
    data = LivenessEventData(component="<!here>", since=TWO)
    event = make_event("acme", "liveness.missed", data, id_="x", subject="<!here>", at=TWO)
    with_text = {**event, "data": {**event["data"], "text": "<!here> & &amp;"}}

    assert "&lt;!here&gt;" in headline(parse(Event, event))
    assert headline(parse(Event, with_text)) == "&lt;!here&gt; &amp; &amp;"


@pytest.mark.requirement("S117")
def test_headline_shows_the_type_of_an_event_without_text() -> None:
    data = LivenessEventData(component="ticker", since=TWO)
    event = make_event("acme", "liveness.missed", data, id_="x", subject="ticker", at=TWO)

    assert headline(parse(Event, event)) == (
        "The event harebell.liveness.missed.v1 of /harebell/acme reports ticker."
    )
