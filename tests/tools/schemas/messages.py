"""Every message of the contract with its exchange, its routing keys and its responses."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import create_model

from harebell.contract import amqp_names
from harebell.contract.accepted_commands import ACCEPTED_BATCH, AcceptedCommands
from harebell.contract.amqp_names import message_key, message_type
from harebell.contract.breakers import (
    BreakerCommand,
    BreakerResponse,
    BreakerSnapshot,
    BreakerSnapshotRequest,
)
from harebell.contract.calendar import CALENDAR_COMMANDS, CalendarResponse
from harebell.contract.commands import (
    COMMANDS,
    BulkCommand,
    DeadLetterCommand,
    DeadLetterEdit,
    DeadLetterImport,
    GroupCommand,
    ReplayJobCommand,
    ReplayJobStart,
    RunCancel,
    RunResolve,
)
from harebell.contract.control import StopRequest
from harebell.contract.dead_letter import DeadMessage, DeadRun
from harebell.contract.events import EVENT_DATA, Event
from harebell.contract.message import Message
from harebell.contract.queries import QUERIES
from harebell.contract.responses import (
    QUERY_RESPONSES,
    BulkResponse,
    DeadLetterResponse,
    ErrorResponse,
    ReplayJobResponse,
    RunResponse,
    ScheduleResponse,
)
from harebell.contract.ticket import Ticket
from harebell.messaging.topology.bus import (
    BREAKER_SNAPSHOT_KEY,
    BREAKER_SNAPSHOT_REQUEST_KEY,
    executor_control_key,
)

VERSION: Final = 1  # of every message; a version only gains optional fields
TENANT: Final = "{tenant}"


class Shape(StrEnum):
    """The forms of a body: one item, an array of items, or either."""

    ONE = "one"
    ONE_OR_MANY = "one or many"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Route:
    """An exchange and a routing key, with placeholders such as `{tenant}.schedule.put`."""

    exchange: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageSpec:
    """One message of the documents. `name` is unique, and several messages may share a `type`."""

    name: str
    model: type[Message]
    type: str
    shape: Shape
    routes: tuple[Route, ...] = ()
    responses: tuple[str, ...] = ()  # the names of the possible responses to a request
    content_type: str = amqp_names.JSON

    @property
    def file(self) -> str:
        """Return the name of the schema file."""
        return f"{self.name}.v{VERSION}.json"


RESPONSE_TYPE: Final = message_type("response")
COMMAND_RESPONSES: Final[dict[type[Message], str]] = {
    ScheduleResponse: "response.schedule",
    BulkResponse: "response.bulk",
    RunResponse: "response.run",
    DeadLetterResponse: "response.dead_letters",
    ReplayJobResponse: "response.replay_job",
    BreakerResponse: "response.breaker",
    CalendarResponse: "response.calendar",
    ErrorResponse: "response.error",
}


def _responses_to(verb: str) -> tuple[str, ...]:
    if verb in QUERIES:
        return _query_response(verb), COMMAND_RESPONSES[ErrorResponse]
    models: tuple[type[Message], ...] = (*_command_responses(COMMANDS[verb]), ErrorResponse)
    return tuple(COMMAND_RESPONSES[model] for model in models)


def _query_response(verb: str) -> str:
    return f"response.{verb}"


def _command_responses(command: type[Message]) -> tuple[type[Message], ...]:
    responses: tuple[type[Message], ...] = (ScheduleResponse,)
    if issubclass(command, DeadLetterCommand | GroupCommand | DeadLetterEdit | DeadLetterImport):
        responses = (DeadLetterResponse,)
    elif issubclass(command, ReplayJobStart | ReplayJobCommand):
        responses = (ReplayJobResponse,)
    elif issubclass(command, BreakerCommand):
        responses = (BreakerResponse,)
    elif command in CALENDAR_COMMANDS.values():
        responses = (CalendarResponse,)
    elif issubclass(command, RunCancel | RunResolve):
        responses = (RunResponse,)
    elif issubclass(command, BulkCommand):
        responses = (ScheduleResponse, BulkResponse)
    return responses


def _requests() -> Iterator[MessageSpec]:
    for exchange, models, shape in (
        (amqp_names.COMMANDS, COMMANDS, Shape.ONE_OR_MANY),
        (amqp_names.QUERIES, QUERIES, Shape.ONE),
    ):
        for verb, model in models.items():
            yield MessageSpec(
                name=verb,
                model=model,
                type=message_type(verb),
                shape=shape,
                routes=(Route(exchange, message_key(TENANT, verb)),),
                responses=_responses_to(verb),
            )


def _responses() -> Iterator[MessageSpec]:
    for model, name in COMMAND_RESPONSES.items():
        yield MessageSpec(name=name, model=model, type=RESPONSE_TYPE, shape=Shape.ONE_OR_MANY)
    for verb, model in QUERY_RESPONSES.items():
        name = _query_response(verb)
        yield MessageSpec(name=name, model=model, type=RESPONSE_TYPE, shape=Shape.ONE)


def _events() -> Iterator[MessageSpec]:
    for verb, data in EVENT_DATA.items():
        type_ = message_type(verb)
        name = f"event.{verb}"
        model = create_model(name, __base__=Event, **_event_fields(type_, data))
        model.__doc__ = f"The event `{verb}`. {Event.__doc__}"
        yield MessageSpec(
            name=name,
            model=model,
            type=type_,
            shape=Shape.MANY,
            routes=(Route(amqp_names.EVENTS, message_key(TENANT, verb)),),
            content_type=amqp_names.CLOUDEVENTS,
        )


def _event_fields(type_: str, data: type[Message]) -> dict[str, Any]:
    return {"type": (Literal[type_], ...), "data": (data, ...)}


def _internal() -> Iterator[MessageSpec]:
    """Yield the messages between services."""
    control = amqp_names.CONTROL
    yield MessageSpec(
        name="accepted_commands",
        model=AcceptedCommands,
        type=message_type("accepted_commands"),
        shape=Shape.ONE,
        routes=(
            Route(amqp_names.CHANGES, amqp_names.CHANGES_SCHEDULE),
            Route(amqp_names.CHANGES, amqp_names.CHANGES_DLQ),
            Route(amqp_names.CHANGES, amqp_names.CHANGES_BREAKER),
        ),
    )
    yield MessageSpec(
        name="accepted_commands.batch",
        model=AcceptedCommands,
        type=ACCEPTED_BATCH,
        shape=Shape.MANY,
        routes=(Route(amqp_names.CHANGES, amqp_names.CHANGES_SCHEDULE),),
    )
    yield MessageSpec(
        name="ticket",
        model=Ticket,
        type=message_type("ticket.batch"),
        shape=Shape.MANY,
        routes=(
            Route(amqp_names.DELAY, "{ttl}"),
            Route(amqp_names.DUE, amqp_names.DUE_KEY),
            Route(amqp_names.WORK, "{pool}.{lane}"),
        ),
    )
    yield MessageSpec(
        name="run.stop",
        model=StopRequest,
        type=message_type("run.stop"),
        shape=Shape.MANY,
        routes=(Route(control, executor_control_key("{instance}")),),
    )
    yield MessageSpec(
        name="breaker.snapshot",
        model=BreakerSnapshot,
        type=message_type("breaker.snapshot"),
        shape=Shape.ONE,
        routes=(Route(control, BREAKER_SNAPSHOT_KEY),),
    )
    yield MessageSpec(
        name="breaker.snapshot_request",
        model=BreakerSnapshotRequest,
        type=message_type("breaker.snapshot_request"),
        shape=Shape.ONE,
        routes=(Route(control, BREAKER_SNAPSHOT_REQUEST_KEY),),
    )
    for kind, model, key in (
        ("run", DeadRun, "run.{tenant}"),
        ("message", DeadMessage, "message.{queue}"),
    ):
        yield MessageSpec(
            name=f"dead.{kind}",
            model=model,
            type=message_type(f"{kind}.dead"),
            shape=Shape.MANY,
            routes=(Route(amqp_names.DEAD, key), Route(amqp_names.PARKED, key)),
        )


MESSAGES: Final = (*_requests(), *_responses(), *_events(), *_internal())
