"""`harebell schedule history`, `diff` and `rollback`: the versions of a schedule."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

import typer

from harebell.cli.arguments.schedule_ref import Schedule, schedule_ref
from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.options import Note, RequestId
from harebell.cli.framework.session import Session
from harebell.cli.manifests.plan import diff_definitions
from harebell.cli.schedule.manage import Revive, print_schedule
from harebell.client import Client, VersionView
from harebell.contract.errors import InvalidInput, NotFound
from harebell.contract.redaction import (
    REDACTED_CODE,
    literals_of,
    redacted_fields,
    refuse_redacted,
)

app = typer.Typer()

COLUMNS: Final = (
    "version",
    "in_force",
    "status",
    "status_reason",
    "accepted_at",
    "effective_at",
    "actor",
    "note",
)
KEPT_SECRETS: Final = "The literal secrets of the version in force stay."
DIFFERENCE_COLUMNS: Final = ("field", "before", "after")

VersionNumber: TypeAlias = Annotated[
    int, typer.Argument(metavar="VERSION", min=1, help="Name the version (number from 1).")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryOptions:
    """The options of `schedule history`."""

    schedule: Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of `schedule diff`."""

    schedule: Schedule
    before: Annotated[
        int, typer.Argument(metavar="VERSION1", min=1, help="Compare this version (number).")
    ]
    after: Annotated[
        int, typer.Argument(metavar="VERSION2", min=1, help="Compare with this version (number).")
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RollbackOptions:
    """The options of `schedule rollback`."""

    schedule: Schedule
    version: VersionNumber
    revive: Revive = False
    note: Note = None
    request_id: RequestId = None


@command(app, "history")
async def history(session: Session, options: HistoryOptions) -> ExitCode:
    """List the versions of a schedule, newest first, with their status and their actor."""
    async with session.connect() as client:
        rows = await client.versions(**schedule_ref(options.schedule))
    session.output.print_rows(rows, COLUMNS)
    return ExitCode.DONE


@command(app, "diff")
async def diff(session: Session, options: DiffOptions) -> ExitCode:
    """Print the differences of two versions. The exit code is 3 if both are equal."""
    async with session.connect() as client:
        versions = await _versions(client, options.schedule)
    before, after = _version(versions, options.before), _version(versions, options.after)
    rows = diff_definitions(before.definition, after.definition)
    session.output.print_rows(rows, DIFFERENCE_COLUMNS, empty="The versions are equal.")
    return exit_code_of_many(done=len(rows))


@command(app, "rollback")
async def rollback(session: Session, options: RollbackOptions) -> ExitCode:
    """Create a new version with the definition of an older version.

    The literal secrets of the version in force stay, because views hide those of older versions.
    """
    async with session.connect() as client:
        versions = await _versions(client, options.schedule)
        definition = _version(versions, options.version).definition
        if "key" not in definition:
            reason = "The schedule must have a key, because the rollback puts it again."
            raise InvalidInput(reason, code="no_key")
        fields: dict[str, Any] = {
            "expected_version": next(n for n, each in versions.items() if each.in_force),
            "note": options.note or f"rollback to version {options.version}",
        }
        if options.request_id is not None:
            fields["request_id"] = options.request_id
        if options.revive:
            fields["revive"] = True
        if not redacted_fields(definition.get("target")):
            return print_schedule(session.output, await client.put({**definition, **fields}))
        present = versions[fields["expected_version"]].definition
        # A put of `***` would replace the secrets, so a patch changes only the other fields.
        changes = rollback_patch(present, definition)
        response = await client.patch(changes, key=definition["key"], **fields)
        session.output.print_message(KEPT_SECRETS)
        return print_schedule(session.output, response)


def rollback_patch(present: Mapping[str, Any], older: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that makes the present definition equal to the older one.

    Both are redacted, and the patch contains no literal secret. Raises `InvalidInput` if the older
    version has a literal secret in a field that the present version lacks, or if the patch would
    have to set a null.
    """
    lost = set(literals_of(older.get("target"))) - set(literals_of(present.get("target")))
    if lost:
        reason = "The rollback needs a literal secret that the version in force does not have."
        raise InvalidInput(reason, field=f"target.{min(lost)}", code=REDACTED_CODE)
    patch = _merge_patch_of(present, older)
    refuse_redacted(patch.get("target"), "target")
    return patch


def _merge_patch_of(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if name in before and old == value:
            continue
        if _contains_null(value):
            reason = "The rollback cannot set a null beside literal secrets."
            raise InvalidInput(reason, field=name, code=REDACTED_CODE)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            patch[name] = _merge_patch_of(old, value)
        else:
            patch[name] = value
    return patch


def _contains_null(value: object) -> bool:
    """Return whether a value contains a null, which a merge patch would remove."""
    if isinstance(value, Mapping):
        return any(map(_contains_null, value.values()))
    return value is None


async def _versions(client: Client, schedule: str) -> dict[int, VersionView]:
    versions = await client.versions(**schedule_ref(schedule))
    return {each.version: each for each in versions}


def _version(versions: dict[int, VersionView], number: int) -> VersionView:
    if number not in versions:
        raise NotFound(f"The schedule has versions 1 to {max(versions)}, not {number}.")
    return versions[number]
