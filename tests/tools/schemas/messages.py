"""Every message of the contract with its way on the bus: what the published documents describe."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import create_model

from harebell.contract import amqp_names
from harebell.contract.accepted_commands import AcceptedCommands
from harebell.contract.amqp_names import message_key, message_type
from harebell.contract.breakers import (
    BreakerCommand,
    BreakerResponse,
    BreakerSnapshot,
    BreakerSnapshotRequest,
)
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
from harebell.contract.queries import QUERIES, BreakerList, ListQuery
from harebell.contract.responses import (
    BulkResponse,
    DeadLetterResponse,
    ErrorResponse,
    One,
    Page,
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
    """What a body holds."""

    ONE = "one"
    ONE_OR_MANY = "one or many"
    MANY = "many"


@dataclass(frozen=True, slots=True)
class Route:
    """`key` has a placeholder where it depends on the message: `{tenant}.schedule.put`."""

    exchange: str
    key: str


@dataclass(frozen=True, slots=True)
class Described:
    """`name` is unique; `type` is the AMQP property, which answers and tickets share."""

    name: str
    model: type[Message]
    type: str
    shape: Shape
    routes: tuple[Route, ...] = ()
    answers: tuple[str, ...] = ()  # names of what may come back
    content_type: str = amqp_names.JSON

    @property
    def file(self) -> str:
        return f"{self.name}.v{VERSION}.json"


ANSWERS: Final[dict[type[Message], str]] = {
    ScheduleResponse: "response.schedule",
    BulkResponse: "response.bulk",
    RunResponse: "response.run",
    DeadLetterResponse: "response.dead_letters",
    ReplayJobResponse: "response.replay_job",
    BreakerResponse: "response.breaker",
    Page: "response.page",
    One: "response.one",
    ErrorResponse: "response.error",
}


def _answered_by(model: type[Message]) -> tuple[str, ...]:
    if issubclass(model, DeadLetterCommand | GroupCommand | DeadLetterEdit | DeadLetterImport):
        answers: tuple[type[Message], ...] = (DeadLetterResponse,)
    elif issubclass(model, ReplayJobStart | ReplayJobCommand):
        answers = (ReplayJobResponse,)
    elif issubclass(model, BreakerCommand):
        answers = (BreakerResponse,)
    elif issubclass(model, RunCancel | RunResolve):
        answers = (RunResponse,)
    elif issubclass(model, BulkCommand):
        answers = (ScheduleResponse, BulkResponse)
    elif model in COMMANDS.values():
        answers = (ScheduleResponse,)
    else:
        answers = (Page if issubclass(model, ListQuery | BreakerList) else One,)
    return *(ANSWERS[answer] for answer in answers), ANSWERS[ErrorResponse]


def _requests() -> Iterator[Described]:
    for exchange, models, shape in (
        (amqp_names.COMMANDS, COMMANDS, Shape.ONE_OR_MANY),
        (amqp_names.QUERIES, QUERIES, Shape.ONE),
    ):
        for verb, model in models.items():
            routes = (Route(exchange, message_key(TENANT, verb)),)
            yield Described(verb, model, message_type(verb), shape, routes, _answered_by(model))


def _answers() -> Iterator[Described]:
    for model, name in ANSWERS.items():
        yield Described(name, model, message_type("response"), Shape.ONE_OR_MANY)


def _events() -> Iterator[Described]:
    for verb, fact in EVENT_DATA.items():
        type_ = message_type(verb)
        name = f"event.{verb}"
        model = create_model(name, __base__=Event, **_narrowed(type_, fact))
        model.__doc__ = f"`{verb}`: {Event.__doc__}"
        routes = (Route(amqp_names.EVENTS, message_key(TENANT, verb)),)
        yield Described(name, model, type_, Shape.MANY, routes, content_type=amqp_names.CLOUDEVENTS)


def _narrowed(type_: str, fact: type[Message]) -> dict[str, Any]:
    return {"type": (Literal[type_], ...), "data": (fact, ...)}


_CHANGES: Final = (
    Route(amqp_names.CHANGES, amqp_names.CHANGES_SCHEDULE),
    Route(amqp_names.CHANGES, amqp_names.CHANGES_DLQ),
    Route(amqp_names.CHANGES, amqp_names.CHANGES_BREAKER),
)
_TICKETS: Final = (
    Route(amqp_names.DELAY, "{tier}"),
    Route(amqp_names.DUE, amqp_names.DUE_KEY),
    Route(amqp_names.WORK, "{pool}.{lane}"),
)
_STOPS: Final = (Route(amqp_names.CONTROL, executor_control_key("{instance}")),)

_STANDING: Final = (Route(amqp_names.CONTROL, BREAKER_SNAPSHOT_KEY),)
_ASKING: Final = (Route(amqp_names.CONTROL, BREAKER_SNAPSHOT_REQUEST_KEY),)


def _dead(kind: str, model: type[Message], key: str) -> Described:
    routes = (Route(amqp_names.DEAD, key),)
    return Described(f"dead.{kind}", model, message_type(f"{kind}.dead"), Shape.MANY, routes)


MESSAGES: Final = (
    *_requests(),
    *_answers(),
    *_events(),
    Described("change", AcceptedCommands, message_type("change"), Shape.ONE, _CHANGES),
    Described("ticket", Ticket, message_type("ticket.batch"), Shape.MANY, _TICKETS),
    Described("run.stop", StopRequest, message_type("run.stop"), Shape.MANY, _STOPS),
    Described(
        "breaker.snapshot", BreakerSnapshot, message_type("breaker.snapshot"), Shape.ONE, _STANDING
    ),
    Described(
        "breaker.snapshot_request",
        BreakerSnapshotRequest,
        message_type("breaker.snapshot_request"),
        Shape.ONE,
        _ASKING,
    ),
    _dead("run", DeadRun, "run.{tenant}"),
    _dead("message", DeadMessage, "message.{queue}"),
)
