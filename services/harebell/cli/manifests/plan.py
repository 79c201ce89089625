"""What to do so that the schedules of one owner are as files say: the plan of `apply`. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, TypeAlias

import orjson

from harebell.contract.errors import InvalidInput
from harebell.contract.message import parse
from harebell.contract.schedule import Definition

FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
CANCELLED: Final = "cancelled"
# Of a schedule that leaves its timing to its tenant's default, which only Harebell knows.
ANY_WHEN: Final = {"now": True}


Difference: TypeAlias = dict[str, Any]  # field, before, after; and the same in words


class ManifestAction(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    CANCEL = "cancel"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class ManifestStep:
    """`expected_version`: what it was planned on; None of what is not there."""

    action: ManifestAction
    key: str
    body: Mapping[str, Any]
    changes: Sequence[Difference] = ()
    expected_version: int | None = None


def desired_schedules(items: Iterable[Mapping[str, Any]], owner: str) -> dict[str, dict[str, Any]]:
    """By key, in order. Raises `Malformed` for what could not be this owner's, once."""
    found: dict[str, dict[str, Any]] = {}
    for place, item in enumerate(items):
        field = f"[{place}]"
        key = item.get("key")
        if not isinstance(key, str):
            raise InvalidInput("needs a key, to be recognised", field=field, code="no_key")
        if key in found:
            raise InvalidInput(f"{key!r} is there twice", field=field, code="twice")
        if item.get("owner", owner) != owner:
            reason = f"{key!r} is of {item['owner']!r}, not of {owner!r}"
            raise InvalidInput(reason, field=f"{field}.owner", code="foreign_owner")
        if unknown := set(item) - FIELDS:
            reason = f"{key!r}: there is no such field"
            raise InvalidInput(reason, field=f"{field}.{min(unknown)}", code="unknown_field")
        found[key] = {**item, "owner": owner}
    return found


def plan_put(
    desired: Mapping[str, Any], stored: Mapping[str, Any] | None, owner: str
) -> ManifestStep:
    """`stored`: as `schedule.get` shows it. Raises `Malformed` for what is another owner's."""
    key = desired["key"]
    if stored is None:
        return ManifestStep(
            ManifestAction.CREATE, key, desired, diff_definitions({}, without_defaults(desired))
        )
    if stored["owner"] != owner:
        reason = f"{key!r} belongs to {stored['owner'] or 'nobody'!r}"
        raise InvalidInput(reason, field="owner", code="foreign_owner")
    now = stored["definition"]
    version = stored["version"]
    changes = diff_definitions(
        without_defaults(now), without_defaults({"when": now["when"], **desired})
    )
    if stored["state"] == CANCELLED:
        return ManifestStep(ManifestAction.CREATE, key, desired, changes, version)
    if changes:
        return ManifestStep(ManifestAction.UPDATE, key, desired, changes, version)
    return ManifestStep(ManifestAction.KEEP, key, desired)


def plan_cancel(stored: Mapping[str, Any]) -> ManifestStep | None:
    """Of what no file has: it goes, unless it has gone already."""
    if stored["state"] == CANCELLED or stored["key"] is None:
        return None
    return ManifestStep(ManifestAction.CANCEL, stored["key"], {})


def without_defaults(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says only a default, so that two ways to write the same are the same."""
    model = parse(Definition, {"when": ANY_WHEN, **definition})
    fields = model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: fields[name] for name in fields if name != "when" or "when" in definition}


MAX_SHOWN: Final = 200  # characters of one value in words


def diff_definitions(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Difference]:
    return list(_within(before, after, ""))


def _within(before: Mapping[str, Any], after: Mapping[str, Any], path: str) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        field = f"{path}.{name}" if path else name
        old, new = before.get(name), after.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            yield from _within(old, new, field)
        elif old != new or (name in before) != (name in after):
            words = f"{field}: {_shown(name, before)} -> {_shown(name, after)}"
            yield {"field": field, "before": old, "after": new, "text": words}


def _shown(name: str, fields: Mapping[str, Any]) -> str:
    if name not in fields:
        return "(none)"
    text = orjson.dumps(fields[name]).decode()
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
