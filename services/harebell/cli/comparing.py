"""What to do so that the schedules of one owner are as files say: the plan of `apply`. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from harebell.cli.differences import Difference, differences
from harebell.contract.errors import Malformed
from harebell.contract.message import parse
from harebell.contract.schedule import Definition

FIELDS: Final = {field.alias or name for name, field in Definition.model_fields.items()}
CANCELLED: Final = "cancelled"
# Of a schedule that leaves its timing to its tenant's default, which only Harebell knows.
ANY_WHEN: Final = {"now": True}


class Action(StrEnum):
    CREATE = "create"
    UPDATE = "update"
    CANCEL = "cancel"
    KEEP = "keep"


@dataclass(frozen=True, slots=True)
class Step:
    """`expected_version`: what it was planned on; None of what is not there."""

    action: Action
    key: str
    body: Mapping[str, Any]
    changes: Sequence[Difference] = ()
    expected_version: int | None = None


def wanted(items: Iterable[Mapping[str, Any]], owner: str) -> dict[str, dict[str, Any]]:
    """By key, in order. Raises `Malformed` for what could not be this owner's, once."""
    found: dict[str, dict[str, Any]] = {}
    for place, item in enumerate(items):
        field = f"[{place}]"
        key = item.get("key")
        if not isinstance(key, str):
            raise Malformed("needs a key, to be recognised", field=field, code="no_key")
        if key in found:
            raise Malformed(f"{key!r} is there twice", field=field, code="twice")
        if item.get("owner", owner) != owner:
            reason = f"{key!r} is of {item['owner']!r}, not of {owner!r}"
            raise Malformed(reason, field=f"{field}.owner", code="foreign_owner")
        if unknown := set(item) - FIELDS:
            reason = f"{key!r}: there is no such field"
            raise Malformed(reason, field=f"{field}.{min(unknown)}", code="unknown_field")
        found[key] = {**item, "owner": owner}
    return found


def step_to(desired: Mapping[str, Any], stored: Mapping[str, Any] | None, owner: str) -> Step:
    """`stored`: as `schedule.get` shows it. Raises `Malformed` for what is another owner's."""
    key = desired["key"]
    if stored is None:
        return Step(Action.CREATE, key, desired, differences({}, brief(desired)))
    if stored["owner"] != owner:
        reason = f"{key!r} belongs to {stored['owner'] or 'nobody'!r}"
        raise Malformed(reason, field="owner", code="foreign_owner")
    now = stored["definition"]
    version = stored["version"]
    changes = differences(brief(now), brief({"when": now["when"], **desired}))
    if stored["state"] == CANCELLED:
        return Step(Action.CREATE, key, desired, changes, version)
    if changes:
        return Step(Action.UPDATE, key, desired, changes, version)
    return Step(Action.KEEP, key, desired)


def step_from(stored: Mapping[str, Any]) -> Step | None:
    """Of what no file has: it goes, unless it has gone already."""
    if stored["state"] == CANCELLED or stored["key"] is None:
        return None
    return Step(Action.CANCEL, stored["key"], {})


def brief(definition: Mapping[str, Any]) -> dict[str, Any]:
    """Without what says only a default, so that two ways to write the same are the same."""
    model = parse(Definition, {"when": ANY_WHEN, **definition})
    fields = model.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {name: fields[name] for name in fields if name != "when" or "when" in definition}
