"""The decorator that makes a command of `harebell` from a function and a dataclass of options."""

import asyncio
import copy
import inspect
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import MISSING, fields
from typing import Annotated, Any, Final, TypeAlias, TypeVar, get_args, get_type_hints

import typer
from typer.models import OptionInfo

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of
from harebell.cli.framework.options import GlobalOptions
from harebell.cli.framework.output import error_line_of
from harebell.cli.framework.session import Session
from harebell.contract.errors import HarebellError

Action: TypeAlias = Callable[..., ExitCode | Coroutine[Any, Any, ExitCode]]
A = TypeVar("A", bound=Action)

GLOBAL_OPTIONS: Final = tuple(field.name for field in fields(GlobalOptions))


def command(
    app: typer.Typer,
    name: str,
    *,
    alias: str | None = None,
    global_options: Collection[str] = GLOBAL_OPTIONS,
) -> Callable[[A], A]:
    """Return a decorator that adds a function to `app` as the command `name`.

    The function takes a session and, if the command has options, one dataclass with a field for
    each. Its docstring is the help, which hides `alias`, a second name of the command.
    `global_options` names the global options that the command accepts after its name.
    """

    def add(action: A) -> A:
        callback = _callback(action, global_options)
        app.command(name)(callback)
        if alias is not None:
            app.command(alias, hidden=True)(callback)
        return action

    return add


def _callback(action: Action, global_options: Collection[str]) -> Callable[..., None]:
    """Return the function that typer calls. Its signature lists the options of `action`."""
    options_type = _options_type(action)
    own = [] if options_type is None else _parameters(options_type)
    overrides = [_override(each) for each in _parameters(GlobalOptions)]
    overrides = [each for each in overrides if each.name in global_options]

    def callback(context: typer.Context, **values: Any) -> None:  # noqa: ANN401  # typer's values
        session = Session.create(
            context.obj, {each.name: values.pop(each.name) for each in overrides}
        )
        arguments = {} if options_type is None else {"options": options_type(**values)}
        raise typer.Exit(_run(session, action, arguments))

    # Typer reads the options from the signature and the annotations of the function.
    signature = inspect.Signature([_CONTEXT, *own, *overrides])
    vars(callback).update(__signature__=signature)
    callback.__annotations__ = {
        each.name: each.annotation for each in signature.parameters.values()
    }
    callback.__doc__ = action.__doc__
    return callback


def _run(session: Session, action: Action, arguments: Mapping[str, object]) -> ExitCode:
    """Return the exit code of the command. Print an error as one line."""
    try:
        result = action(session, **arguments)
        return result if isinstance(result, ExitCode) else asyncio.run(result)
    except HarebellError as error:
        session.output.print_message(error_line_of(error))
        return exit_code_of(error)


def _options_type(action: Action) -> type[Any] | None:
    """Return the dataclass that `action` takes as `options`, or None."""
    parameter = inspect.signature(action, eval_str=True).parameters.get("options")
    return None if parameter is None else parameter.annotation


def _parameters(options_type: type[Any]) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as keyword parameters."""
    hints = get_type_hints(options_type, include_extras=True)
    return [
        _parameter(each.name, hints[each.name], _EMPTY if each.default is MISSING else each.default)
        for each in fields(options_type)
    ]


def _override(parameter: inspect.Parameter) -> inspect.Parameter:
    """Return a global option as an option of one command.

    The option has no default and no variable, because either would replace a value that precedes
    the name of the command.
    """
    value_type, root_option = get_args(parameter.annotation)
    option: OptionInfo = copy.copy(root_option)
    option.envvar = None
    return _parameter(parameter.name, Annotated[value_type | None, option], None)


def _parameter(name: str, annotation: object, default: object) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


_EMPTY: Final = inspect.Parameter.empty
_CONTEXT: Final = _parameter("context", typer.Context, _EMPTY)
