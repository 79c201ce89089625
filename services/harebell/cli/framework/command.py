"""Makes a coroutine a command: the options that all have, a session, and one line for an error."""

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Annotated, Any, Concatenate, Final, ParamSpec, TypeAlias

import typer

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of
from harebell.cli.framework.output import Format, error_line_of
from harebell.cli.framework.session import ProcessContext, Session
from harebell.contract.errors import HarebellError

P = ParamSpec("P")
Action: TypeAlias = Callable[Concatenate[Session, P], Coroutine[Any, Any, ExitCode]]

MIN_TIMEOUT: Final = 0.1  # seconds
MAX_TIMEOUT: Final = 3600.0  # seconds

AmqpUrl = Annotated[str | None, typer.Option("--amqp-url", metavar="URL", help="The broker.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Whose schedules.")]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout", min=MIN_TIMEOUT, max=MAX_TIMEOUT, help="Seconds to wait for each answer."
    ),
]
Form = Annotated[Format | None, typer.Option("--output", "-o", help="How to print.")]

COMMON: Final[dict[str, Any]] = {
    "amqp_url": AmqpUrl,
    "tenant": Tenant,
    "timeout": Timeout,
    "output": Form,
}


def command(app: typer.Typer, name: str) -> Callable[[Action[P]], Action[P]]:
    """The coroutine's own parameters follow its session; its docstring is the help."""

    def mount(action: Action[P]) -> Action[P]:
        act: Callable[..., Coroutine[Any, Any, ExitCode]] = action

        def run(context: typer.Context, **given: Any) -> None:  # noqa: ANN401  # typer's values
            session = _session(context.obj, {option: given.pop(option) for option in COMMON})
            raise typer.Exit(asyncio.run(_perform(session, act(session, **given))))

        _, *own = inspect.signature(action, eval_str=True).parameters.values()
        _describe(run, [_CONTEXT, *own, *_COMMON], action.__doc__)
        app.command(name)(run)
        return action

    return mount


def _session(surroundings: ProcessContext, given: dict[str, Any]) -> Session:
    told = {option: value for option, value in given.items() if value is not None}
    return Session(replace(surroundings.options, **told), surroundings)


async def _perform(session: Session, action: Coroutine[Any, Any, ExitCode]) -> ExitCode:
    try:
        return await action
    except HarebellError as error:
        session.output.say(error_line_of(error))
        return exit_code_of(error)


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


_CONTEXT: Final = _parameter("context", typer.Context, inspect.Parameter.empty)
_COMMON: Final = [_parameter(name, annotation, None) for name, annotation in COMMON.items()]


def _describe(
    run: Callable[..., None], parameters: list[inspect.Parameter], help_text: str | None
) -> None:
    """Typer reads a command's parameters from its signature, so `run` is given the whole one."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    signature = inspect.Signature([each.replace(kind=keyword) for each in parameters])
    vars(run).update(__signature__=signature)
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__doc__ = help_text
