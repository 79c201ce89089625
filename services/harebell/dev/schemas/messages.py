"""Every message of the contract with its way on the bus: what the published documents describe."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import create_model

from harebell.contract import names
from harebell.contract.answers import (
    DlqAnswer,
    JobAnswer,
    One,
    Page,
    Refusal,
    RunAnswer,
    ScheduleAnswer,
    SelectionAnswer,
)
from harebell.contract.breakers import Asking, BreakerAnswer, BreakerCommand, Standing
from harebell.contract.changes import Change
from harebell.contract.commands import (
    COMMANDS,
    DlqCommand,
    DlqEdit,
    DlqGroupCommand,
    DlqImport,
    DlqJobCommand,
    DlqStart,
    RunCancel,
    RunResolve,
    SelectingCommand,
)
from harebell.contract.dead import DeadMessage, DeadRun
from harebell.contract.events import FACTS, Event
from harebell.contract.message import Message
from harebell.contract.names import message_key, message_type
from harebell.contract.queries import QUERIES, BreakerList, Listing
from harebell.contract.stop import Stop
from harebell.contract.ticket import Ticket
from harebell.kernel.bus import BREAKERS_ASKED_KEY, BREAKERS_KEY, control_key

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
    content_type: str = names.JSON

    @property
    def file(self) -> str:
        return f"{self.name}.v{VERSION}.json"


ANSWERS: Final[dict[type[Message], str]] = {
    ScheduleAnswer: "answer.schedule",
    SelectionAnswer: "answer.selection",
    RunAnswer: "answer.run",
    DlqAnswer: "answer.dlq",
    JobAnswer: "answer.job",
    BreakerAnswer: "answer.breaker",
    Page: "answer.page",
    One: "answer.one",
    Refusal: "answer.refusal",
}


def _answered_by(model: type[Message]) -> tuple[str, ...]:
    if issubclass(model, DlqCommand | DlqGroupCommand | DlqEdit | DlqImport):
        answers: tuple[type[Message], ...] = (DlqAnswer,)
    elif issubclass(model, DlqStart | DlqJobCommand):
        answers = (JobAnswer,)
    elif issubclass(model, BreakerCommand):
        answers = (BreakerAnswer,)
    elif issubclass(model, RunCancel | RunResolve):
        answers = (RunAnswer,)
    elif issubclass(model, SelectingCommand):
        answers = (ScheduleAnswer, SelectionAnswer)
    elif model in COMMANDS.values():
        answers = (ScheduleAnswer,)
    else:
        answers = (Page if issubclass(model, Listing | BreakerList) else One,)
    return *(ANSWERS[answer] for answer in answers), ANSWERS[Refusal]


def _requests() -> Iterator[Described]:
    for exchange, models, shape in (
        (names.COMMANDS, COMMANDS, Shape.ONE_OR_MANY),
        (names.QUERIES, QUERIES, Shape.ONE),
    ):
        for verb, model in models.items():
            routes = (Route(exchange, message_key(TENANT, verb)),)
            yield Described(verb, model, message_type(verb), shape, routes, _answered_by(model))


def _answers() -> Iterator[Described]:
    for model, name in ANSWERS.items():
        yield Described(name, model, message_type("answer"), Shape.ONE_OR_MANY)


def _events() -> Iterator[Described]:
    for verb, fact in FACTS.items():
        type_ = message_type(verb)
        name = f"event.{verb}"
        model = create_model(name, __base__=Event, **_narrowed(type_, fact))
        model.__doc__ = f"`{verb}`: {Event.__doc__}"
        routes = (Route(names.EVENTS, message_key(TENANT, verb)),)
        yield Described(name, model, type_, Shape.MANY, routes, content_type=names.CLOUDEVENTS)


def _narrowed(type_: str, fact: type[Message]) -> dict[str, Any]:
    return {"type": (Literal[type_], ...), "data": (fact, ...)}


_CHANGES: Final = (
    Route(names.CHANGES, names.CHANGES_SCHEDULE),
    Route(names.CHANGES, names.CHANGES_DLQ),
    Route(names.CHANGES, names.CHANGES_BREAKER),
)
_TICKETS: Final = (
    Route(names.DELAY, "{tier}"),
    Route(names.DUE, names.DUE_KEY),
    Route(names.WORK, "{pool}.{lane}"),
)
_STOPS: Final = (Route(names.CONTROL, control_key("{instance}")),)

_STANDING: Final = (Route(names.CONTROL, BREAKERS_KEY),)
_ASKING: Final = (Route(names.CONTROL, BREAKERS_ASKED_KEY),)


def _dead(kind: str, model: type[Message], key: str) -> Described:
    routes = (Route(names.DEAD, key),)
    return Described(f"dead.{kind}", model, message_type(f"{kind}.dead"), Shape.MANY, routes)


MESSAGES: Final = (
    *_requests(),
    *_answers(),
    *_events(),
    Described("change", Change, message_type("change"), Shape.ONE, _CHANGES),
    Described("ticket", Ticket, message_type("ticket.bundle"), Shape.MANY, _TICKETS),
    Described("run.stop", Stop, message_type("run.stop"), Shape.MANY, _STOPS),
    Described("breaker.standing", Standing, message_type("breaker.standing"), Shape.ONE, _STANDING),
    Described("breaker.asking", Asking, message_type("breaker.asking"), Shape.ONE, _ASKING),
    _dead("run", DeadRun, "run.{tenant}"),
    _dead("message", DeadMessage, "message.{queue}"),
)
