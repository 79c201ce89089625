"""`harebell apply`: the schedules of one owner become equal to files."""

import asyncio
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import typer

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import DryRun
from harebell.cli.framework.output import error_line_of
from harebell.cli.framework.session import Session
from harebell.cli.manifests.export import MAX_CONCURRENT_REQUESTS, fetch_schedules
from harebell.cli.manifests.files import read_manifests
from harebell.cli.manifests.manifest import Manifest
from harebell.cli.manifests.plan import (
    ManifestAction,
    ManifestStep,
    desired_schedules,
    placing_errors,
    plan_cancel,
    plan_put,
)
from harebell.client import Client
from harebell.contract.errors import (
    CommandRejected,
    Conflict,
    HarebellError,
    InvalidInput,
    Rejected,
)

app = typer.Typer()

COLUMNS: Final = ("action", "key", "done", "note", "changes")
KEY_FIELD: Final = "key"  # of a conflict with another body
CANCEL_NOTE: Final = "not in the applied files"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyOptions:
    """The options of `apply`."""

    file: Annotated[
        str,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|DIR|-",
            help="Read this file or all files of this folder (YAML or JSON, - for standard input).",
        ),
    ]
    owner: Annotated[
        str,
        typer.Option(
            "--owner",
            metavar="OWNER",
            help="Change only the schedules of this owner.",
        ),
    ]
    dry_run: DryRun = False
    prune: Annotated[
        bool,
        typer.Option(
            "--prune", help="Cancel the schedules of the owner that the files do not contain."
        ),
    ] = False


@command(app, "apply")
async def apply(session: Session, options: ApplyOptions) -> ExitCode:
    """Make the schedules of one owner equal to files. Print every step with its differences."""
    desired = desired_schedules(read_manifests(options.file, sys.stdin.buffer), options.owner)
    async with session.connect() as client:
        steps = await _plan(client, desired, options)
        errors: list[HarebellError | None] = [None] * len(steps)
        if not options.dry_run:
            limit = asyncio.Semaphore(MAX_CONCURRENT_REQUESTS)
            errors = await asyncio.gather(*(_execute(client, step, limit) for step in steps))
    results = list(zip(steps, errors, strict=True))
    rows = [_row(step, error, dry_run=options.dry_run) for step, error in results]
    session.output.print_rows(rows, COLUMNS)
    for step, error in results:
        if error is not None:
            text = f"{step.key}: {error_line_of(error)}"
            if isinstance(error, InvalidInput | CommandRejected) and step.key in desired:
                text += f" ({desired[step.key].place_of(error.field)})"
            session.output.print_message(text)
    failed = sum(error is not None for error in errors)
    return exit_code_of_many(done=len(steps) - failed, failed=failed)


async def _plan(
    client: Client, desired: Mapping[str, Manifest], options: ApplyOptions
) -> list[ManifestStep]:
    """Return every step. Compare all schedules before any step changes one."""
    stored = await fetch_schedules(client, list(desired))
    steps = []
    for key, manifest in desired.items():
        with placing_errors(manifest):
            steps.append(plan_put(manifest.definition, stored[key], options.owner))
    if options.prune:
        owned = [row async for row in client.schedules(owner=options.owner)]
        cancels = (plan_cancel(row) for row in owned if row.key not in desired)
        steps += [step for step in cancels if step is not None]
    return steps


async def _execute(
    client: Client, step: ManifestStep, limit: asyncio.Semaphore
) -> HarebellError | None:
    """Execute a step. Return its error, so that the other steps continue."""
    if step.action is ManifestAction.KEEP:
        return None
    async with limit:
        try:
            if step.action is ManifestAction.CANCEL:
                await client.cancel(key=step.key, note=CANCEL_NOTE)
            elif step.compares_secrets and await _has_same_secrets(client, step):
                return None
            elif step.expected_version is None:
                await client.put(step.body)
            else:
                await client.put({**step.body, "expected_version": step.expected_version})
        except Rejected as error:
            return error
    return None


async def _has_same_secrets(client: Client, step: ManifestStep) -> bool:
    """Put the schedule without a version, which changes nothing. Return whether it is equal."""
    try:
        await client.put(step.body)
    except CommandRejected as error:
        if error.code == Conflict.code and error.field == KEY_FIELD:
            return False
        raise
    return True


def _row(step: ManifestStep, error: HarebellError | None, *, dry_run: bool) -> dict[str, Any]:
    is_done = not dry_run and error is None and step.action is not ManifestAction.KEEP
    return {
        "action": step.action,
        "key": step.key,
        "done": is_done,
        "note": step.note,
        "changes": list(step.changes),
    }
