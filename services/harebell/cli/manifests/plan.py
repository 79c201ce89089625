"""The plan of `harebell apply`: the steps that make stored schedules equal to the files."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson

from harebell.cli.manifests.manifest import Manifest
from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.redaction import literals_of, redact_definition, refuse_redacted
from harebell.contract.schedule import Definition
from harebell.contract.views import ScheduleDetail, ScheduleView

FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
CANCELLED: Final = "cancelled"
COMPLETED: Final = "completed"
ENDED_STATES: Final = (CANCELLED, COMPLETED)
SECRETS_NOTE: Final = "The service compares the literal secrets and changes only different ones."
WHEN_FIELD: Final = "when"
# A schedule may omit `when`, because its tenant has a default that only the services know.
ANY_WHEN: Final = {"now": True}
MAX_VALUE_SHOWN: Final = 200  # characters of one value in the text of a difference

# The field, its values before and after the change, and the text of the difference.
Difference: TypeAlias = dict[str, Any]


class ManifestAction(StrEnum):
    """The change that a step makes."""

    CREATE = "create"
    UPDATE = "update"
    REVIVE = "revive"
    CANCEL = "cancel"
    KEEP = "keep"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestStep:
    """One step of a plan: the change of one schedule.

    `expected_version` is the stored version that the plan compared, or None without a schedule.
    `note` states the consequence of the state of the schedule.
    """

    action: ManifestAction
    key: str
    body: Mapping[str, Any]
    changes: Sequence[Difference] = ()
    expected_version: int | None = None
    note: str | None = None
    compares_secrets: bool = False  # the service compares the literal secrets with the stored ones


def desired_schedules(manifests: Iterable[Manifest], owner: str) -> dict[str, Manifest]:
    """Return the schedules of the files by key, in their order.

    Raises `InvalidInput` with the place of a schedule without a key, with the key of another
    schedule, with another owner, with an unknown field or with a redacted value.
    """
    desired: dict[str, Manifest] = {}
    for manifest in manifests:
        with placing_errors(manifest):
            key = _check_manifest(manifest.definition, owner)
            if key in desired:
                other = desired[key].place_of()
                reason = f"The key must be unique in the files, but {key!r} is also in {other}."
                raise InvalidInput(reason, field="key", code="duplicate_key")
        desired[key] = replace(manifest, definition={**manifest.definition, "owner": owner})
    return desired


@contextmanager
def placing_errors(manifest: Manifest) -> Iterator[None]:
    """Add the place of the faulty field to the reason of an error."""
    try:
        yield
    except InvalidInput as error:
        reason = f"{error.reason} ({manifest.place_of(error.field)})"
        raise InvalidInput(reason, field=error.field, code=error.code) from None


def _check_manifest(definition: Mapping[str, Any], owner: str) -> str:
    """Return the key. Raise `InvalidInput`."""
    key = definition.get("key")
    if not isinstance(key, str):
        reason = "The schedule must have a key, which identifies it in the next apply."
        raise InvalidInput(reason, field="key", code="no_key")
    if definition.get("owner", owner) != owner:
        reason = f"The owner of {key!r} must be {owner!r}, not {definition['owner']!r}."
        raise InvalidInput(reason, field="owner", code="foreign_owner")
    if unknown := set(definition) - FIELDS:
        reason = f"The schedule {key!r} has a field that does not exist."
        raise InvalidInput(reason, field=min(unknown), code="unknown_field")
    refuse_redacted(definition.get("target"), "target")
    return key


def plan_put(desired: Mapping[str, Any], stored: ScheduleDetail | None, owner: str) -> ManifestStep:
    """Return the step that makes the stored schedule equal to the desired schedule.

    Raises `InvalidInput` if the stored schedule belongs to another owner.
    """
    key = desired["key"]
    if stored is None:
        changes = diff_definitions({}, redact_definition(without_defaults(desired)))
        return ManifestStep(action=ManifestAction.CREATE, key=key, body=desired, changes=changes)
    if stored.owner != owner:
        found = repr(stored.owner) if stored.owner else "none"
        reason = f"The owner of the stored schedule {key!r} must be {owner!r}, not {found}."
        raise InvalidInput(reason, field="owner", code="foreign_owner")
    definition = stored.definition
    wanted = without_defaults({"when": definition["when"], **desired})
    # The stored definition is redacted, and the output must contain no literal secret.
    changes = diff_definitions(without_defaults(definition), redact_definition(wanted))
    action, note = _action(stored, changes)
    compares_secrets = not changes and stored.state not in ENDED_STATES and has_literals(wanted)
    if compares_secrets:
        action, note = ManifestAction.UPDATE, SECRETS_NOTE
    is_kept = action is ManifestAction.KEEP
    return ManifestStep(
        action=action,
        key=key,
        body={**desired, "revive": True} if action is ManifestAction.REVIVE else desired,
        changes=changes,
        expected_version=None if is_kept else stored.version,
        note=note,
        compares_secrets=compares_secrets,
    )


def has_literals(definition: Mapping[str, Any]) -> bool:
    """Return whether a definition contains literal secrets, which a stored definition hides."""
    return bool(literals_of(definition.get("target")))


def _action(
    stored: ScheduleDetail, changes: Sequence[Difference]
) -> tuple[ManifestAction, str | None]:
    """Return the action for a stored schedule, and a note about an ended schedule.

    A completed schedule starts again only if `when` differs. Another `apply` of the same files
    would otherwise start each one-shot schedule again.
    """
    if stored.state == CANCELLED:
        return ManifestAction.REVIVE, "The schedule is cancelled and starts again."
    has_other_times = any(each["field"].split(".")[0] == WHEN_FIELD for each in changes)
    if stored.state == COMPLETED and has_other_times:
        return ManifestAction.REVIVE, "The schedule is completed and starts again."
    if stored.state == COMPLETED:
        kept = "The schedule is completed. It starts again if `when` changes."
        return ManifestAction.KEEP, kept
    return (ManifestAction.UPDATE if changes else ManifestAction.KEEP), None


def plan_cancel(stored: ScheduleView) -> ManifestStep | None:
    """Return the step that cancels a schedule that no file contains.

    Return None for a schedule that is already cancelled or has no key.
    """
    if stored.state == CANCELLED or stored.key is None:
        return None
    return ManifestStep(action=ManifestAction.CANCEL, key=stored.key, body={})


def without_defaults(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Return a definition without explicit defaults, so that equal schedules compare as equal."""
    model = parse(Definition, {"when": ANY_WHEN, **definition})
    fields = model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: fields[name] for name in fields if name != "when" or "when" in definition}


def diff_definitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    """Return the differences of two definitions, field by field."""
    return list(_differences(before, after, ""))


def _differences(
    before: Mapping[str, Any], after: Mapping[str, Any], path: str
) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        field = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _differences(old, new, field)
        elif old != new or (name in before) != (name in after):
            text = f"{field}: {_value_text(name, before)} -> {_value_text(name, after)}"
            yield {"field": field, "before": old, "after": new, "text": text}


def _value_text(name: str, fields: Mapping[str, Any]) -> str:
    if name not in fields:
        return "(none)"
    text = orjson.dumps(fields[name]).decode()
    return text if len(text) <= MAX_VALUE_SHOWN else f"{text[:MAX_VALUE_SHOWN]}..."
