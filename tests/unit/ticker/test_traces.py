"""Tests of the trace of a command: where the ticker and the dlq_inspector store it."""

from datetime import timedelta
from uuid import UUID

import orjson
from tests.fakes.spans import link_ids, recorded_spans
from tests.fakes.tickets import NINE, ticket

from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.policy import Overlap
from harebell.contract.schedule import Definition
from harebell.contract.ticket import RunSpec
from harebell.contract.trace import TraceOrigin
from harebell.dlq_inspector.model.dead_letter import DeadLetterKind
from harebell.dlq_inspector.model.results import DeadLetterState, LockedDeadLetter
from harebell.domain.run_states import ScheduleState
from harebell.messaging.ticket_batches import TicketHeader
from harebell.ticker.model.planning_window import PlanningStep
from harebell.ticker.model.run_rows import manual_run_row
from harebell.ticker.model.unit_of_work import ManualRun, ManualRunOrigin, ScheduleRecord
from harebell.ticker.model.version import Version
from harebell.ticker.plan_writer import SaveResult
from harebell.ticker.stage_spans import record_pass

ID = UUID("5f0c1a52-7d4f-5c1b-9d80-0d3c1c3f7a11")
SPAN = "b7ad6b7169203331"
TRACEPARENT = f"00-0af7651916cd43dd8448eb211c80319c-{SPAN}-01"
MESSAGE = AcceptedCommands(
    tenant="acme",
    verb="schedule.put",
    accepted_at=NINE,
    traceparent=TRACEPARENT,
    tracestate="a=1",
    single=True,
    items=[],
)
ORIGIN = TraceOrigin(traceparent=TRACEPARENT, tracestate="a=1", at=NINE)


def version(trace: dict[str, str] | None) -> Version:
    definition = Definition.model_validate(
        {"when": {"every": "1h"}, "target": {"task": {"name": "report"}}}
    )
    return Version.create(ID, 1, tenant="acme", definition=definition, at=NINE, trace=trace)


def test_run_spec_of_a_version_keeps_the_trace_of_its_command() -> None:
    traced, plain = version(MESSAGE.trace), version(None)

    assert RunSpec.model_validate_json(traced.run_spec).trace == ORIGIN
    assert "trace" not in orjson.loads(plain.run_spec)
    assert traced.definition_json == plain.definition_json


def test_override_of_a_manual_run_has_the_form_that_executors_compare() -> None:
    run = ManualRun(
        version=version(None),
        scheduled_for=NINE,
        origin=ManualRunOrigin.TRIGGER,
        overlap=Overlap.SKIP,
        trace=MESSAGE.trace,
    )

    override = manual_run_row(run).override

    assert override is not None
    assert orjson.loads(override) == {"overlap": "skip", "trace": MESSAGE.trace}
    assert orjson.dumps(orjson.loads(override)).decode() == override


def test_override_of_a_replayed_run_gets_the_trace_of_the_replay() -> None:
    dead_letter = LockedDeadLetter(
        id=ID,
        kind=DeadLetterKind.RUN,
        state=DeadLetterState.OPEN,
        run=ticket().run_key,
        replay_number=0,
        is_unstarted=False,
        override='{"overlap":"skip"}',
    )

    override = dead_letter.next_override(MESSAGE.trace)

    assert override is not None
    assert orjson.loads(override) == {"overlap": "skip", "trace": MESSAGE.trace}
    assert dead_letter.next_override() == '{"overlap":"skip"}'


def test_staging_pass_is_one_span_with_links_to_the_commands_of_its_versions() -> None:
    versions = [version(MESSAGE.trace), version(None), version(MESSAGE.trace)]
    steps = [_step(each) for each in versions]
    saved = SaveResult([TicketHeader.of(ticket())], steps, [])

    with recorded_spans() as spans:
        record_pass(saved, started_at=NINE, ended_at=NINE + timedelta(seconds=1))
        record_pass(SaveResult([], steps, []), started_at=NINE, ended_at=NINE)

    recorded = spans.one("stage")
    assert link_ids(recorded) == [SPAN]
    assert recorded.attributes is not None
    assert recorded.attributes["messaging.batch.message_count"] == 1
    assert recorded.start_time is not None
    assert recorded.end_time == recorded.start_time + 1_000_000_000


def _step(of_version: Version) -> PlanningStep:
    record = ScheduleRecord(of_version, ScheduleState.ACTIVE, planned_until=NINE, changed_at=NINE)
    return PlanningStep(previous=record, record=record, versions=[of_version])
