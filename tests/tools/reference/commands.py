"""The page of the command line, from the command tree."""

from enum import Enum
from typing import Any, Final

from tests.architecture.command_line import CommandPath, commands, visible_leaves
from tests.tools.reference import markdown
from tests.tools.reference.markdown import code, codes, prose, sentences_on_lines, table

# Every command that contacts the broker has these options.
GLOBAL_OPTIONS: Final = ("amqp_url", "amqp_url_file", "tenant", "timeout", "output")
HIDDEN: Final = ("help", "version", "install_completion", "show_completion")
EXIT_CODES: Final = (
    ("0", "The command has done its work."),
    ("1", "The command failed, or `audit` found a difference."),
    ("2", "The arguments are wrong, and the command changed nothing."),
    ("3", "Nothing matches the filters or the name."),
    ("4", "A part of the work is done, and the output names the rest."),
)


def page() -> str:
    """Return the page."""
    by_path = dict(commands())
    root = by_path[()]
    intro = (
        "`harebell` publishes commands and queries, and prints the responses.\n"
        "If a command contacts the broker, you may write the common options before or after its "
        "name.\n"
        "What commands have in common is on the page "
        "[client and command line](../architecture/client-and-cli.md)."
    )
    shared = [each for each in root.params if each.name in GLOBAL_OPTIONS]
    variables = table(
        ("option", "variable", "meaning"),
        [
            (_names(each), code(f"HAREBELL_{(each.name or '').upper()}"), _meaning(each))
            for each in sorted(shared, key=lambda each: GLOBAL_OPTIONS.index(each.name))
        ],
    )
    exits = table(("code", "meaning"), EXIT_CODES)
    leaves = [path for path in by_path if path in visible_leaves()]
    parts = [_section(path, by_path[path]) for path in leaves]
    return markdown.page(
        "Commands",
        intro,
        "## Common options",
        variables,
        "## Exit codes",
        exits,
        *parts,
    )


def _section(path: CommandPath, command: Any) -> str:
    own = [
        each
        for each in command.params
        if each.name not in (*GLOBAL_OPTIONS, *HIDDEN) and not getattr(each, "hidden", False)
    ]
    usage = " ".join(["harebell", *path, *map(_in_usage, own)])
    rows = [(_names(each), _default(each), _meaning(each)) for each in own]
    parts = [
        f"## harebell {' '.join(path)}",
        sentences_on_lines(command.help or ""),
        f"```text\n{usage}\n```",
    ]
    return "\n\n".join([*parts, table(("argument", "default", "meaning"), rows)] if rows else parts)


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _in_usage(parameter: Any) -> str:
    if _is_argument(parameter):
        text = parameter.metavar or (parameter.name or "").upper()
        text += "..." if parameter.nargs == -1 else ""
    else:
        text = parameter.opts[0] + (f" {parameter.metavar}" if parameter.metavar else "")
    return text if parameter.required else f"[{text}]"


def _names(parameter: Any) -> str:
    if _is_argument(parameter):
        return code(parameter.metavar or (parameter.name or "").upper())
    value = f" {parameter.metavar}" if parameter.metavar else ""
    return codes(f"{each}{value}" for each in (*parameter.opts, *parameter.secondary_opts))


def _meaning(parameter: Any) -> str:
    annotation = parameter.type_descriptor.annotation
    is_choice = isinstance(annotation, type) and issubclass(annotation, Enum)
    values = f" One of {codes(each.value for each in annotation)}." if is_choice else ""
    return prose(parameter.help or "") + values


def _default(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if value is None or value is False or value == () or callable(value):
        return ""
    return code(getattr(value, "value", value))
