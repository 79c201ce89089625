"""`when`: the instants of a schedule, as they are written. One rule, known by the key present."""

from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Final, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    field_validator,
)

from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, invalid
from harebell.contract.types import Bound, Count, Duration, Instant, Interval, ShortText

MAX_CRON: Final = 256  # characters
MAX_RULES: Final = 16  # of one any_of


class DstGap(StrEnum):
    """A local time that the clocks skip: the instant after the gap, or no run."""

    NEXT = "next"
    SKIP = "skip"


class DstOverlap(StrEnum):
    """A local time that the clocks show twice: the first, the second, or both."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class WhenRule(StrictMessage):
    """What every rule may add: `jitter` delays the start by a fixed part of it, never the key."""

    jitter: Duration | None = None


class Now(WhenRule):
    now: Literal[True]


class At(WhenRule):
    at: Instant


class After(WhenRule):
    after: Duration


class Recurring(WhenRule):
    """Bounds are inclusive; a day as `end` means to the end of that day in `timezone`.

    `times` counts dispatched runs. `until: success` makes a run wait for the end of the one before,
    and the first that succeeds the last.
    """

    timezone: ShortText = "UTC"
    start: Bound | None = None
    end: Bound | None = None
    times: Count | None = None
    until: Literal["success"] | None = None


class Every(Recurring):
    """anchor + k * every, k >= 0; the anchor is `start`, or else acceptance + every.

    `from: completion`: so long after the run before has ended.
    """

    every: Interval
    from_: Literal["schedule", "completion"] = Field(default="schedule", alias="from")


class CronRule(Recurring):
    """`dst_gap`, `dst_overlap`: null is the rule of Debian's cron."""

    cron: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CRON)]
    dst_gap: DstGap | None = None
    dst_overlap: DstOverlap | None = None


class AnyOf(Recurring):
    """Every instant of any of its rules, once. Bounds, `times` and `jitter` stand beside it."""

    any_of: Annotated[list["AnyOfMember"], Field(min_length=1, max_length=MAX_RULES)]

    @field_validator("any_of")
    @classmethod
    def _plain(cls, rules: list["AnyOfMember"]) -> list["AnyOfMember"]:
        for rule in rules:
            # defaults count as left out: our own messages write them out
            given = rule.model_dump(exclude_defaults=True).keys() & {
                *("jitter", "times", "until", "from_"),
            }
            if given:
                name = min(given).rstrip("_")
                raise invalid("invalid_when", f"put {name} beside any_of, not into its rules")
        return rules


_MEMBERS: Final[dict[str, type[WhenRule]]] = {
    "now": Now,
    "at": At,
    "after": After,
    "every": Every,
    "cron": CronRule,
}
_KINDS: Final[dict[str, type[WhenRule]]] = {**_MEMBERS, "any_of": AnyOf}
_TAGS: Final[dict[type, str]] = {model: UNION_TAG_PREFIX + kind for kind, model in _KINDS.items()}


def _check_kind(value: object, kinds: Mapping[str, type[WhenRule]] = _KINDS) -> object:
    if not isinstance(value, dict):
        if isinstance(value, WhenRule):
            return value
        raise invalid("invalid_when", "must be an object")
    if len(kinds.keys() & value) != 1:
        present = [kind for kind in kinds if kind in value]
        found = ", ".join(present) or "none of them"
        raise invalid("invalid_when", f"has exactly one of {', '.join(kinds)}; found {found}")
    return value


def _kind(value: object) -> str | None:
    if isinstance(value, dict):
        present = _KINDS.keys() & value
        return UNION_TAG_PREFIX + present.pop() if present else None
    return _TAGS.get(type(value))


AnyOfMember = Annotated[
    Annotated[Now, Tag(UNION_TAG_PREFIX + "now")]
    | Annotated[At, Tag(UNION_TAG_PREFIX + "at")]
    | Annotated[After, Tag(UNION_TAG_PREFIX + "after")]
    | Annotated[Every, Tag(UNION_TAG_PREFIX + "every")]
    | Annotated[CronRule, Tag(UNION_TAG_PREFIX + "cron")],
    Discriminator(_kind),
    BeforeValidator(partial(_check_kind, kinds=_MEMBERS)),
]

When = Annotated[
    Annotated[Now, Tag(UNION_TAG_PREFIX + "now")]
    | Annotated[At, Tag(UNION_TAG_PREFIX + "at")]
    | Annotated[After, Tag(UNION_TAG_PREFIX + "after")]
    | Annotated[Every, Tag(UNION_TAG_PREFIX + "every")]
    | Annotated[CronRule, Tag(UNION_TAG_PREFIX + "cron")]
    | Annotated[AnyOf, Tag(UNION_TAG_PREFIX + "any_of")],
    Discriminator(_kind),
    BeforeValidator(_check_kind),
    Field(description="exactly one of now, at, after, every, cron, any_of"),
]

AnyOf.model_rebuild()
