"""`harebell apply` and `harebell export`: the schedules of one owner, as files say."""

import asyncio
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
import yaml

from harebell.cli.arguments.documents import read_documents
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.output import Format, error_line_of
from harebell.cli.framework.session import Session
from harebell.cli.manifests.plan import (
    ManifestAction,
    ManifestStep,
    desired_schedules,
    plan_cancel,
    plan_put,
    without_defaults,
)
from harebell.cli.schedule.manage import DryRun
from harebell.client import Client, CommandRejected
from harebell.contract.errors import HarebellError, NotFound, Rejected

ROW: Final = ("action", "key", "done", "changes")
AT_ONCE: Final = 20  # questions under way
GONE: Final = ("cancelled", "completed")

Place = Annotated[
    str, typer.Option("--file", "-f", metavar="FILE|DIR|-", help="YAML or JSON; - is stdin.")
]
Owner = Annotated[str, typer.Option("--owner", help="Whose: no other's are touched.")]
OwnerFilter = Annotated[str | None, typer.Option("--owner", help="Only those of this owner.")]
TagFilter = Annotated[str | None, typer.Option("--tag", help="Only those with this tag.")]
Prune = Annotated[
    bool, typer.Option("--prune", help="Cancel the owner's schedules that are not there.")
]


async def apply(
    session: Session,
    *,
    file: Place,
    owner: Owner,
    dry_run: DryRun = False,  # a flag
    prune: Prune = False,  # a flag
) -> ExitCode:
    """Make the schedules of one owner as files say; --dry-run shows the differences only."""
    desired = desired_schedules(read_documents(file, sys.stdin.buffer), owner)
    async with session.harebell() as harebell:
        steps = await _planned(harebell, desired, owner, prune=prune)
        asked = asyncio.Semaphore(AT_ONCE)
        faults = await asyncio.gather(
            *(_take(harebell, step, asked, dry_run=dry_run) for step in steps)
        )
    rows = [_row(step, fault, dry_run=dry_run) for step, fault in zip(steps, faults, strict=True)]
    session.output.rows(rows, ROW)
    for step, fault in zip(steps, faults, strict=True):
        if fault is not None:
            session.output.say(f"{error_line_of(fault)}: {step.key}")
    failed = sum(fault is not None for fault in faults)
    return exit_code_of_many(done=len(steps) - failed, failed=failed)


async def export(session: Session, *, owner: OwnerFilter = None, tag: TagFilter = None) -> ExitCode:
    """Write schedules as `apply` reads them: YAML, or JSON with -o json."""
    async with session.harebell() as harebell:
        rows = [row async for row in harebell.schedules(owner=owner, tag=tag)]
        keyed = [row["key"] for row in rows if row["key"] and row["state"] not in GONE]
        shown = await _shown(harebell, sorted(keyed))
    left = sum(row["key"] is None and row["state"] not in GONE for row in rows)
    if left:
        session.output.say(f"harebell: left out, as they have no key: {left}")
    definitions = [
        without_defaults(each["definition"]) for each in shown.values() if each is not None
    ]
    if session.options.output is Format.JSON:
        session.output.rows(definitions, ())
    elif definitions:
        typer.echo(yaml.safe_dump_all(definitions, sort_keys=False, allow_unicode=True), nl=False)
    return exit_code_of_many(done=len(definitions))


async def _planned(
    harebell: Client, desired: Mapping[str, Mapping[str, Any]], owner: str, *, prune: bool
) -> list[ManifestStep]:
    """All of it is compared before any of it is done."""
    stored = await _shown(harebell, list(desired))
    steps = [plan_put(desired[key], stored[key], owner) for key in desired]
    if prune:
        others = [row async for row in harebell.schedules(owner=owner)]
        found = (plan_cancel(row) for row in others if row["key"] not in desired)
        steps += [step for step in found if step is not None]
    return steps


async def _shown(harebell: Client, keys: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    asked = asyncio.Semaphore(AT_ONCE)

    async def one(key: str) -> dict[str, Any] | None:
        async with asked:
            try:
                return await harebell.schedule(key=key)
            except CommandRejected as error:
                if error.code == NotFound.code:
                    return None
                raise

    return dict(zip(keys, await asyncio.gather(*map(one, keys)), strict=True))


async def _take(
    harebell: Client, step: ManifestStep, asked: asyncio.Semaphore, *, dry_run: bool
) -> HarebellError | None:
    """What stood against it, if anything did: the others go on."""
    if dry_run or step.action is ManifestAction.KEEP:
        return None
    async with asked:
        try:
            if step.action is ManifestAction.CANCEL:
                await harebell.cancel(key=step.key, note="not in the files applied")
            elif step.expected_version is None:
                await harebell.put(step.body)
            else:
                await harebell.put({**step.body, "expected_version": step.expected_version})
        except Rejected as error:
            return error
    return None


def _row(step: ManifestStep, fault: HarebellError | None, *, dry_run: bool) -> dict[str, Any]:
    done = not dry_run and fault is None and step.action is not ManifestAction.KEEP
    return {"action": step.action, "key": step.key, "done": done, "changes": list(step.changes)}
