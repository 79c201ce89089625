"""Questions into answers: rows of the store as users see them, page by page."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import assert_never

from harebell.contract.amqp_names import check_version
from harebell.contract.errors import NotFound, Rejected
from harebell.contract.ids import RunKey
from harebell.contract.json_codec import encode
from harebell.contract.message import Message
from harebell.contract.responses import One, Page, error_response
from harebell.domain.page_cursor import PageCursor
from harebell.domain.validation import prefixing_field
from harebell.intake.commands.check import (
    NOT_JSON,
    IncomingRequest,
    check_tenant,
    parse_routing_key,
)
from harebell.intake.commands.definition import TargetPolicy, check_definition
from harebell.intake.commands.publish import (
    message_id_of,
)
from harebell.intake.queries.parse import (
    Breakers,
    OneRun,
    Preview,
    Question,
    Runs,
    Schedules,
    StoredSchedule,
    Versions,
    WhyNot,
    parse_query,
)
from harebell.intake.queries.schedule_history import ScheduleHistory
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.views import (
    Row,
    View,
    attempt_view,
    breaker_view,
    definition_view,
    run_view,
    schedule_view,
    version_view,
)
from harebell.intake.queries.why import explain, explanation_view, preview_view
from harebell.intake.commands.handler import read_request as _submission
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.publisher import Publisher
from harebell.messaging.replies import reply, send_reply
from harebell.runtime.clock import Clock


async def answer_query(
    store: IntakeStore,
    tenant: str,
    question: Question,
    *,
    now: datetime,
    target_policy: TargetPolicy,
) -> One | Page:
    """Raises `NotFound`: also for what is another tenant's."""
    told: One | Page
    match question:
        case StoredSchedule():
            told = await _schedule(store, tenant, question, now)
        case OneRun():
            told = await _run(store, tenant, question)
        case Schedules():
            rows = await store.schedules(tenant, question)
            views = [schedule_view(row, now=now) for row in rows]
            told = _page(rows, views, question.limit, _created)
        case Runs():
            rows = await store.runs(tenant, question)
            told = _page(rows, [run_view(row) for row in rows], question.limit, _scheduled)
        case Versions():
            told = await _versions(store, tenant, question)
        case Preview():
            told = await _preview(store, tenant, question, now, target_policy)
        case WhyNot():
            told = await _why(store, tenant, question, now)
        case Breakers():
            told = Page(items=[breaker_view(row) for row in await store.breakers()])
        case _:
            assert_never(question)
    return told


async def _schedule(store: IntakeStore, tenant: str, asked: StoredSchedule, now: datetime) -> One:
    row = await _stored(store, tenant, asked)
    return One(item=schedule_view(row, now=now) | {"definition": definition_view(row)})


async def _run(store: IntakeStore, tenant: str, asked: OneRun) -> One:
    row = await store.run(tenant, asked.key)
    if row is None:
        raise NotFound("there is no such run", field="run_id")
    attempts = await store.attempts(asked.key)
    return One(item=run_view(row) | {"attempts": [attempt_view(each) for each in attempts]})


async def _versions(store: IntakeStore, tenant: str, asked: Versions) -> One:
    row = await _stored(store, tenant, asked.of)
    versions = await store.versions(row["id"])
    views = [version_view(each, in_force=row["version"]) for each in versions]
    return One(item={"id": str(row["id"]), "key": row["key"], "versions": views})


async def _preview(
    store: IntakeStore, tenant: str, asked: Preview, now: datetime, may_call: TargetPolicy
) -> One:
    if isinstance(asked.of, StoredSchedule):
        story = await _story(store, tenant, asked.of)
    else:
        with prefixing_field("definition"):
            check_definition(asked.of, asked.schedule_id, accepted_at=now, target_policy=may_call)
        story = ScheduleHistory.of_terms(asked.of, asked.schedule_id, now=now)
    return One(item=preview_view(story, asked.after or now, asked.count))


async def _why(store: IntakeStore, tenant: str, asked: WhyNot, now: datetime) -> One:
    story = await _story(store, tenant, asked.of)
    at = asked.at or story.last_until(now)
    row = None if at is None else await store.run_of(tenant, story.id, at)
    attempts = (
        []
        if row is None
        else await store.attempts(RunKey(row["scheduled_for"], row["schedule_id"]))
    )
    return One(item=explanation_view(story, explain(story, at, row, now=now), row, attempts))


async def _story(store: IntakeStore, tenant: str, asked: StoredSchedule) -> ScheduleHistory:
    row = await _stored(store, tenant, asked)
    return ScheduleHistory.of(row, await store.versions(asked.id))


async def _stored(store: IntakeStore, tenant: str, asked: StoredSchedule) -> Row:
    row = await store.get_schedule(tenant, asked.id)
    if row is None:
        raise NotFound("there is no such schedule", field=asked.field)
    return row


def _created(row: Row) -> PageCursor:
    return PageCursor(row["created_at"], row["id"])


def _scheduled(row: Row) -> PageCursor:
    return PageCursor(row["scheduled_for"], row["schedule_id"])


def _page(
    rows: Sequence[Row],
    views: Sequence[View],
    limit: int,
    place: Callable[[Row], PageCursor],
) -> Page:
    """The store reads one row more than was asked for, which tells that there are more."""
    has_more = len(rows) > limit
    return Page(items=list(views[:limit]), next=str(place(rows[limit - 1])) if has_more else None)


class QueryHandler:
    """Handles `harebell.queries`, from the database."""

    def __init__(
        self, publisher: Publisher, clock: Clock, store: IntakeStore, may_call: TargetPolicy
    ) -> None:
        self._publisher = publisher
        self._clock = clock
        self._store = store
        self._may_call = may_call

    async def handle(self, delivery: Delivery) -> Outcome:
        submission = _submission(delivery)
        outcome: Outcome = DONE
        try:
            told = await self._answer(submission)
        except Rejected as error:
            told = error_response(error)
            if error.code == NOT_JSON:
                outcome = DeadLettered(error.code, error.reason)
        if submission.reply_to is not None:
            name = message_id_of(submission)
            body = encode(told)
            message = reply(submission.reply_to, submission.correlation_id, body, message_id=name)
            await send_reply(self._publisher, message)
        return outcome

    async def _answer(self, submission: IncomingRequest) -> Message:
        """Raises `Rejected`."""
        tenant, verb = parse_routing_key(submission.routing_key)
        check_tenant(tenant)
        check_version(submission.type)
        now = self._clock.now()
        question = parse_query(tenant, verb, submission.body, now=now)
        return await answer_query(self._store, tenant, question, now=now, target_policy=self._may_call)
