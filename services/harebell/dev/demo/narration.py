"""The output of the demo: headings, sentences, commands and the next steps."""

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
    """A printer without line folding and markup, so that a user can copy each line."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._numbers = count(1)

    def heading(self, title: str) -> None:
        self._print(f"\n{next(self._numbers)}. {title}", "bold")

    def text(self, text: str) -> None:
        self._print(text)

    def command(self, line: str) -> None:
        self._print(f"$ {line}", "cyan")

    def output(self, text: str) -> None:
        self._print(text, "dim")

    def _print(self, text: str, style: str | None = None) -> None:
        self.console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def print_next_steps(narration: Narration, status: StackStatus, *, suffix: str, stop: str) -> None:
    """Print the address of the management UI and some commands to try."""
    narration.heading("Next steps")
    narration.text(_management(status))
    narration.text("Try these commands:")
    narration.command(f"export HAREBELL_AMQP_URL={shlex.quote(status.amqp_url)}")
    narration.command(f"echo '{HELLO % suffix}' | {commands.display_line('schedule', 'put', '-')}")
    narration.command(commands.display_line("run", "list", "--since", "10m"))
    narration.command(commands.display_line("dlq", "list", "--state", "all"))
    narration.text(f"The stack keeps running. Stop it with {stop}.")


def _management(status: StackStatus) -> str:
    if status.management_url is None:
        return "The management UI is that of your broker."
    login = urlsplit(status.amqp_url)
    name, password = unquote(login.username or ""), unquote(login.password or "")
    return f"The management UI is {status.management_url} (user {name}, password {password})."
