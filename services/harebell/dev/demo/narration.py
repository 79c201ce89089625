"""The words around the demo: chapters, sentences, commands, and what to do afterwards."""

import shlex
from itertools import count
from urllib.parse import unquote, urlsplit

from rich.console import Console

from harebell.dev.demo import commands
from harebell.dev.status import StackStatus

HELLO = (
    '{"key": "hello-%s", "when": {"after": "5s"}, "target": {"task": {"name": "harebell.echo"}}}'
)


class Narration:
    """Nothing is folded or marked up, so what is shown can be copied as it stands."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._numbers = count(1)

    def chapter(self, title: str) -> None:
        self._print(f"\n{next(self._numbers)}. {title}", "bold")

    def say(self, text: str) -> None:
        self._print(text)

    def command(self, line: str) -> None:
        self._print(f"$ {line}", "cyan")

    def output(self, text: str) -> None:
        self._print(text, "dim")

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def farewell(programme: Narration, report: StackStatus, suffix: str, stop: str) -> None:
    """Where to look and what to try, while the stack is up."""
    programme.chapter("Yours")
    programme.say(_management(report))
    programme.say("Three commands to try:")
    programme.command(f"export HAREBELL_AMQP_URL={shlex.quote(report.amqp_url)}")
    programme.command(f"echo '{HELLO % suffix}' | {commands.shown('schedule', 'put', '-')}")
    programme.command(commands.shown("run", "list", "--since", "10m"))
    programme.command(commands.shown("dlq", "list", "--state", "all"))
    programme.say(f"The stack is left up; {stop} stops it.")


def _management(report: StackStatus) -> str:
    if report.management_url is None:
        return "The management UI is that of the broker you gave."
    login = urlsplit(report.amqp_url)
    name, password = unquote(login.username or ""), unquote(login.password or "")
    return f"The management UI: {report.management_url} (user {name}, password {password})"
