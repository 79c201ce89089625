"""The handler of `harebell.queries`: each query becomes one response, from PostgreSQL."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, assert_never
from uuid import UUID

from harebell.contract.amqp_names import OPERATIONS_TENANT, QUERIES, check_version
from harebell.contract.errors import NotAllowed, NotFound, Rejected
from harebell.contract.ids import RunKey, schedule_id
from harebell.contract.message import Message, quoted
from harebell.contract.queries import (
    BreakerList,
    CalendarGet,
    CalendarList,
    DefinitionQuery,
    RunForecast,
    RunGet,
    RunList,
    ScheduleGet,
    ScheduleList,
    SchedulePreview,
    ScheduleRefQuery,
    ScheduleVersions,
    ScheduleWhy,
    TenantUsage,
)
from harebell.contract.responses import Page, error_response
from harebell.contract.views import (
    BreakerView,
    ExplanationView,
    ForecastView,
    RunDetail,
    RunView,
    ScheduleDetail,
    ScheduleView,
    VersionListView,
)
from harebell.domain.page_cursor import PageCursor
from harebell.domain.run_states import RETENTION, Reason, ScheduleState
from harebell.domain.sender import Sender, parse_routing_key
from harebell.domain.validation import prefixing_field
from harebell.intake.commands.check import NOT_JSON, IncomingRequest, check_tenant
from harebell.intake.commands.handler import read_request
from harebell.intake.commands.rules import TargetPolicy, check_definition
from harebell.intake.queries.calendars import (
    calendar_page,
    calendar_view,
    with_latest_calendars,
)
from harebell.intake.queries.forecast import forecast_hours, forecast_view
from harebell.intake.queries.forecast_store import ForecastStore
from harebell.intake.queries.label_holders import find_label_holders
from harebell.intake.queries.parse import IntakeQuery, parse_query
from harebell.intake.queries.schedule_history import ScheduleHistory, next_planned_time
from harebell.intake.queries.store import IntakeStore
from harebell.intake.queries.usage import usage_page
from harebell.intake.queries.views import (
    Row,
    breaker_view,
    needs_versions,
    run_detail,
    run_view,
    schedule_detail,
    schedule_view,
    version_list_view,
)
from harebell.intake.queries.why import Explanation, explain, explanation_view, preview_view
from harebell.messaging.acknowledge import DONE, DeadLettered, Delivery, Outcome
from harebell.messaging.sender_check import SenderCheck
from harebell.runtime.clock import Clock
from harebell.runtime.computations import Computations, Spend

RUN_LIST_PERIOD: Final = timedelta(hours=24)  # of `run.list` without `since` and `until`
MAX_QUERY_CPU: Final = 2.0  # seconds of one computation of scheduled times
NO_SCHEDULE_ID: Final = UUID(int=0)  # stands for the id of a definition without a key


class QueryHandler:
    """The handler that answers queries concurrently and publishes their replies."""

    def __init__(
        self,
        *,
        clock: Clock,
        store: IntakeStore,
        target_policy: TargetPolicy,
        sender_check: SenderCheck,
    ) -> None:
        self._computations = Computations(max_cpu=MAX_QUERY_CPU)
        self._clock = clock
        self._store = store
        self._target_policy = target_policy
        self._sender_check = sender_check

    async def handle(self, delivery: Delivery) -> Outcome:
        """Send the response of one query.

        A query without `reply_to` has no reply. A body that is not JSON becomes a dead letter.
        """
        try:
            sender = self._sender_check.sender_of(delivery, QUERIES)
        except Rejected as error:
            await self._sender_check.refuse(delivery, error)
            return DONE
        request = read_request(delivery, sender)
        outcome: Outcome = DONE
        try:
            response = await self._response(request)
        except Rejected as error:
            response = error_response(error)
            if error.code == NOT_JSON:
                outcome = DeadLettered(error.code, error.reason)
        self._sender_check.reply(delivery, sender, response)
        return outcome

    async def _response(self, request: IncomingRequest) -> Message:
        """Return the response. Raise `Rejected` for an invalid query."""
        tenant, verb = parse_routing_key(request.routing_key)
        check_tenant(tenant)
        check_version(request.type)
        query = parse_query(verb, request.body)
        check_reveal(query, request.sender)
        now = self._clock.now()
        return await answer_query(
            self._store,
            tenant,
            query,
            now=now,
            target_policy=self._target_policy,
            computations=self._computations,
        )


def check_reveal(query: IntakeQuery, sender: Sender | None) -> None:
    """Raise `NotAllowed` for `reveal` of a sender that is not known to be an operator.

    The broker verifies a login in every mode, so the routing key alone reveals nothing.
    """
    if not isinstance(query, DefinitionQuery) or not query.reveal:
        return
    if sender is None or sender.login is None or not sender.is_operator:
        reason = "The field reveal requires the login of an operator in the property user_id."
        raise NotAllowed(reason, field="reveal")


async def answer_query(  # noqa: C901, PLR0912  # one case for each query
    store: IntakeStore,
    tenant: str,
    query: IntakeQuery,
    *,
    now: datetime,
    target_policy: TargetPolicy,
    computations: Computations,
) -> Message:
    """Return the response to a query, of the type in `QUERY_RESPONSES`.

    Raise `NotFound` for a schedule or run that does not exist or belongs to another tenant, and
    `TooExpensive`.
    """
    response: Message
    match query:
        case ScheduleGet():
            response = await _schedule_detail(
                store, tenant, query, now=now, computations=computations
            )
        case ScheduleList():
            response = await _schedule_page(
                store, tenant, query, now=now, computations=computations
            )
        case ScheduleVersions():
            response = await _versions(store, tenant, query)
        case SchedulePreview():
            history = await _previewed(store, tenant, query, now=now, target_policy=target_policy)
            after = query.after or now
            async with computations.turn(tenant) as turn:
                response = await turn.run(
                    lambda spend: preview_view(history.bounded_by(spend), after, query.count)
                )
        case ScheduleWhy():
            response = await _explanation(store, tenant, query, now=now, computations=computations)
        case RunGet():
            response = await _run(store, tenant, query, now=now)
        case RunList():
            response = await _run_page(store, tenant, query, now=now)
        case RunForecast():
            response = await _forecast(store, tenant, query, now=now, computations=computations)
        case BreakerList():
            rows = await store.list_breakers(tenant)
            response = Page[BreakerView](items=[breaker_view(row) for row in rows])
        case TenantUsage():
            response = await usage_page(
                store, tenant, query, policies=target_policy.policies.current
            )
        case CalendarGet():
            response = await calendar_view(store, tenant, query)
        case CalendarList():
            response = await calendar_page(store, tenant)
        case _:
            assert_never(query)
    return response


async def _schedule_detail(
    store: IntakeStore,
    tenant: str,
    query: ScheduleGet,
    *,
    now: datetime,
    computations: Computations,
) -> ScheduleDetail:
    schedule = await _schedule(store, tenant, query)
    _check_not_deleted(schedule, query)
    has_pending = schedule["pending_version"] is not None
    pending = await store.list_pending(schedule["id"]) if has_pending else []
    planned = (await _planned_times(store, tenant, [schedule], computations=computations)).get(
        schedule["id"]
    )
    return schedule_detail(schedule, pending, now=now, planned=planned, reveal=bool(query.reveal))


async def _schedule_page(
    store: IntakeStore,
    tenant: str,
    query: ScheduleList,
    *,
    now: datetime,
    computations: Computations,
) -> Page[ScheduleView]:
    rows, has_more = await store.list_schedules(tenant, query)
    cursor = PageCursor(rows[-1]["created_at"], rows[-1]["id"]) if has_more else None
    planned = await _planned_times(store, tenant, rows, computations=computations)
    return Page[ScheduleView](
        items=[schedule_view(row, now=now, planned=planned.get(row["id"])) for row in rows],
        next=None if cursor is None else str(cursor),
    )


async def _planned_times(
    store: IntakeStore, tenant: str, rows: Sequence[Row], *, computations: Computations
) -> Mapping[UUID, datetime | None]:
    """Return the next time to plan of the few schedules whose rows do not contain this time."""
    schedules = {row["id"]: row for row in rows if needs_versions(row)}
    if not schedules:
        return {}
    versions = await store.list_planned_versions(schedules)

    def compute(spend: Spend) -> Mapping[UUID, datetime | None]:
        return {id_: next_planned_time(row, versions[id_], spend) for id_, row in schedules.items()}

    async with computations.turn(tenant) as turn:
        return await turn.run(compute)


async def _versions(store: IntakeStore, tenant: str, query: ScheduleVersions) -> VersionListView:
    schedule = await _schedule(store, tenant, query)
    versions = await store.list_versions(schedule["id"], schedule["version"])
    return version_list_view(schedule, versions, reveal=bool(query.reveal))


async def _previewed(
    store: IntakeStore,
    tenant: str,
    query: SchedulePreview,
    *,
    now: datetime,
    target_policy: TargetPolicy,
) -> ScheduleHistory:
    """Return the history of the schedule that a preview names or contains."""
    definition = query.definition
    if definition is None:
        reference = ScheduleGet(key=query.key, id=query.id)
        schedule = await _schedule(store, tenant, reference)
        _check_not_deleted(schedule, reference)
        return await _history_of(store, schedule)
    key = definition.key
    id_ = NO_SCHEDULE_ID if key is None else schedule_id(tenant, key)
    with prefixing_field("definition"):
        check_definition(
            definition, id_, tenant=tenant, accepted_at=now, target_policy=target_policy
        )
    definition = await with_latest_calendars(store, tenant, definition)
    return ScheduleHistory.from_policy(definition, id_, now=now)


async def _explanation(
    store: IntakeStore,
    tenant: str,
    query: ScheduleWhy,
    *,
    now: datetime,
    computations: Computations,
) -> ExplanationView:
    history = await _history(store, tenant, query)
    at = query.at
    if at is None:
        async with computations.turn(tenant) as turn:
            at = await turn.run(lambda spend: history.bounded_by(spend).last_time_until(now))
    row = None if at is None else await store.find_run(tenant, history.id, at)
    attempts: list[Row] = []
    removed = label = None
    if row is not None:
        attempts = await store.list_attempts(RunKey(row["scheduled_for"], row["schedule_id"]))
        if row["reason"] == Reason.WAITING_FOR_LABEL:
            label = await find_label_holders(store, row)
    else:
        removed = await store.removed_history(tenant)

    def compute(spend: Spend) -> Explanation:
        return explain(
            history.bounded_by(spend),
            at,
            row,
            now=now,
            attempts=attempts,
            removed=removed,
            label=label,
        )

    async with computations.turn(tenant) as turn:
        explanation = await turn.run(compute)
    return explanation_view(history, explanation, row, attempts=attempts)


async def _run(store: IntakeStore, tenant: str, query: RunGet, *, now: datetime) -> RunDetail:
    key = RunKey.parse(query.run_id)
    row = await store.get_run(tenant, key)
    if row is None:
        reason = f"The run must be a run of this tenant, not {quoted(query.run_id)}."
        raise NotFound(reason, field="run_id")
    return run_detail(row, await store.list_attempts(key), now=now)


async def _run_page(
    store: IntakeStore, tenant: str, query: RunList, *, now: datetime
) -> Page[RunView]:
    since = query.since or _first_listed(query.until, now)
    id_ = query.id if query.key is None else schedule_id(tenant, query.key)
    rows, has_more = await store.list_runs(tenant, query, since=since, id_=id_)
    cursor = PageCursor(rows[-1]["scheduled_for"], rows[-1]["schedule_id"]) if has_more else None
    return Page[RunView](
        items=[run_view(row) for row in rows],
        next=None if cursor is None else str(cursor),
    )


async def _forecast(
    store: IntakeStore,
    tenant: str,
    query: RunForecast,
    *,
    now: datetime,
    computations: Computations,
) -> ForecastView:
    hours = forecast_hours(query, now)
    owner = None if tenant == OPERATIONS_TENANT else tenant
    async with computations.turn(tenant) as turn:
        counts = await ForecastStore(store, turn).count(hours, query.by, owner, now=now)
    return forecast_view(hours, counts, by=query.by, now=now)


def _first_listed(until: datetime | None, now: datetime) -> datetime:
    """Return the start of a list without `since`, which bounds the partitions to read.

    An end in the future may be later than every run, so its list goes back from now.
    """
    return now - RUN_LIST_PERIOD if until is None else min(until, now) - RETENTION


async def _history(store: IntakeStore, tenant: str, query: ScheduleRefQuery) -> ScheduleHistory:
    return await _history_of(store, await _schedule(store, tenant, query))


async def _history_of(store: IntakeStore, schedule: Row) -> ScheduleHistory:
    versions = await store.list_versions(schedule["id"], schedule["version"])
    return ScheduleHistory.from_rows(schedule, versions)


async def _schedule(store: IntakeStore, tenant: str, query: ScheduleRefQuery) -> Row:
    field, id_ = "id", query.id
    if query.key is not None:
        field, id_ = "key", schedule_id(tenant, query.key)
    row = None if id_ is None else await store.get_schedule(tenant, id_)
    if row is None:
        reason = f"The schedule must exist in this tenant, but no schedule has this {field}."
        raise NotFound(reason, field=field)
    return row


def _check_not_deleted(schedule: Row, query: ScheduleRefQuery) -> None:
    """Raise `NotFound` for a deleted schedule, of which only the history stays readable."""
    if schedule["state"] == ScheduleState.DELETED:
        field = "id" if query.key is None else "key"
        reason = "The schedule is deleted. Its versions and its runs stay readable."
        raise NotFound(reason, field=field)
