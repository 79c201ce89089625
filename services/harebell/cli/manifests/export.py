"""`harebell export`: stored schedules in the form that `harebell apply` reads."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import typer
import yaml

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Format, Owner, Reveal, Tag
from harebell.cli.framework.session import Session
from harebell.cli.manifests.plan import without_defaults
from harebell.client import Client, CommandRejected, ScheduleDetail
from harebell.contract.errors import NotFound
from harebell.runtime.yaml_document import resolve_core_schema

app = typer.Typer()


class _Dumper(yaml.SafeDumper):
    """A dumper without anchors, because `apply` accepts none."""

    def ignore_aliases(self, _: object) -> bool:
        return True


resolve_core_schema(_Dumper)  # besides the types of YAML 1.1, so that readers of both agree

MAX_CONCURRENT_REQUESTS: Final = 20
ENDED_STATES: Final = ("cancelled", "completed")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleExportOptions:
    """The options of `export`."""

    owner: Owner = None
    tag: Tag = None
    reveal: Reveal = False


@command(app, "export")
async def export(session: Session, options: ScheduleExportOptions) -> ExitCode:
    """Write schedules in the form that `apply` reads (YAML, or JSON with -o json)."""
    async with session.connect() as client:
        rows = [row async for row in client.schedules(owner=options.owner, tag=options.tag)]
        rows = [row for row in rows if row.state not in ENDED_STATES]
        keys = sorted(row.key for row in rows if row.key)
        stored = await fetch_schedules(client, keys, reveal=options.reveal)
    if without_key := sum(row.key is None for row in rows):
        session.output.print_message(
            f"The export omits {without_key} schedules, because they have no key."
        )
    definitions = [
        without_defaults(each.definition) for each in stored.values() if each is not None
    ]
    print_manifests(session, definitions)
    return exit_code_of_many(done=len(definitions))


def print_manifests(session: Session, definitions: Sequence[Mapping[str, Any]]) -> None:
    """Print definitions in the form that `apply` reads: YAML, or JSON with `-o json`."""
    if session.options.output is Format.JSON:
        session.output.print_rows(definitions, ())
    elif definitions:
        # a terminal gets ASCII, because other characters may change it
        is_unicode = not sys.stdout.isatty()
        text = yaml.dump_all(definitions, Dumper=_Dumper, sort_keys=False, allow_unicode=is_unicode)
        typer.echo(text, nl=False)


async def fetch_schedules(
    client: Client, keys: Sequence[str], *, reveal: bool = False
) -> dict[str, ScheduleDetail | None]:
    """Return the schedule of each key, or None for a key without a schedule."""
    limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)

    async def fetch(key: str) -> ScheduleDetail | None:
        async with limit:
            try:
                return await client.schedule(key=key, reveal=reveal)
            except CommandRejected as error:
                if error.code == NotFound.code:
                    return None
                raise

    return dict(zip(keys, await asyncio.gather(*map(fetch, keys)), strict=True))
