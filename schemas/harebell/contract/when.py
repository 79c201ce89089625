"""The field `when`: the scheduled times, as one rule that is identified by its key."""

from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from harebell.contract.message import UNION_TAG_PREFIX, StrictMessage, UnionByKey, invalid
from harebell.contract.types import Bound, Count, Duration, Instant, Interval, ShortText

MAX_CRON: Final = 256  # characters
MAX_RULES: Final = 16  # of one `any_of`
INVALID_WHEN: Final = "invalid_when"


class DayMatch(StrEnum):
    """The day fields that a date must match if an expression restricts both. The default is one."""

    EITHER = "either"
    BOTH = "both"


class DstGap(StrEnum):
    """The rule for a local time that a clock change skips: the instant after the gap, or no run."""

    NEXT = "next"
    SKIP = "skip"


class DstOverlap(StrEnum):
    """The rule for a local time that a clock change repeats: the first, the second, or both."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class WhenRule(StrictMessage):
    """The base of every rule. `jitter` delays the start and does not change the scheduled time."""

    jitter: Duration | None = None


class Now(WhenRule):
    """One run at once."""

    now: Literal[True]


class At(WhenRule):
    """One run at an instant."""

    at: Instant


class After(WhenRule):
    """One run after a duration."""

    after: Duration


class Recurring(WhenRule):
    """The base of the recurring rules.

    `start` and `end` are inclusive. A day as `end` includes that day in `timezone`.
    `times` is the maximum number of runs. With `until: success`, each run waits for the end of the
    previous run, and the first run that succeeds is the last.
    """

    timezone: ShortText = "UTC"
    start: Bound | None = None
    end: Bound | None = None
    times: Count | None = None
    until: Literal["success"] | None = None


class Every(Recurring):
    """Runs at anchor + k * every, k >= 0. The anchor is `start`, or the acceptance + every.

    With `phase: spread`, the schedule id determines the anchor, so that the runs of many schedules
    spread evenly over the interval. With `from: completion`, each interval begins when the previous
    run ends.
    """

    every: Interval
    from_: Literal["schedule", "completion"] = Field(default="schedule", alias="from")
    phase: Literal["start", "spread"] = "start"

    @model_validator(mode="after")
    def _check_phase(self) -> "Every":
        if self.phase == "spread" and self.from_ == "completion":
            reason = "The phase must not be 'spread' with from 'completion', which has no phase."
            raise invalid(INVALID_WHEN, reason)
        return self


class CronRule(Recurring):
    """Runs at the times of a cron expression. The DST rules default to those of Debian's cron."""

    cron: Annotated[str, StringConstraints(min_length=1, max_length=MAX_CRON)]
    day_match: DayMatch | None = None
    dst_gap: DstGap | None = None
    dst_overlap: DstOverlap | None = None


# The defaults of the fields that belong to the whole `any_of`, by name.
_COMMON_FIELDS: Final = {
    name: Every.model_fields[name].default for name in ("from_", "jitter", "times", "until")
}


class AnyOf(Recurring):
    """Runs at every instant of any of its rules, once. Other fields are next to `any_of`.

    A rule without `timezone` has that of the `any_of`.
    """

    any_of: Annotated[list["AnyOfMember"], Field(min_length=1, max_length=MAX_RULES)]

    @field_validator("any_of")
    @classmethod
    def _check_members(
        cls, rules: list["AnyOfMember"], info: ValidationInfo
    ) -> list["AnyOfMember"]:
        for rule in rules:
            # A stated default counts as omitted, because messages of services state defaults.
            given = (
                name
                for name, default in _COMMON_FIELDS.items()
                if getattr(rule, name, default) != default
            )
            if (field := next(given, None)) is not None:
                name = field.rstrip("_")
                reason = f"The field {name!r} must be next to any_of, not in one of its rules."
                raise invalid(INVALID_WHEN, reason)
        if (timezone := info.data.get("timezone")) is None:  # it has its own error
            return rules
        return [
            rule.model_copy(update={"timezone": timezone})
            if isinstance(rule, Recurring) and "timezone" not in rule.model_fields_set
            else rule
            for rule in rules
        ]

    @model_serializer(mode="wrap")
    def _state_other_timezones(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """State the time zone of exactly the rules that do not have that of the `any_of`."""
        fields: dict[str, Any] = write(self)
        for rule, written in zip(self.any_of, fields["any_of"], strict=True):
            if isinstance(rule, Recurring):
                written.pop("timezone", None)
                if rule.timezone != self.timezone:
                    written["timezone"] = rule.timezone
        return fields


_MEMBERS: Final[dict[str, type[WhenRule]]] = {
    "now": Now,
    "at": At,
    "after": After,
    "every": Every,
    "cron": CronRule,
}
# The rule of a `when`, by the key that identifies the rule.
WHEN_RULES: Final[dict[str, type[WhenRule]]] = {**_MEMBERS, "any_of": AnyOf}
_MEMBER: Final = UnionByKey(_MEMBERS, code=INVALID_WHEN, other_keys=True)
_WHEN: Final = UnionByKey(WHEN_RULES, code=INVALID_WHEN, other_keys=True)

AnyOfMember = Annotated[
    Annotated[Now, Tag(UNION_TAG_PREFIX + "now")]
    | Annotated[At, Tag(UNION_TAG_PREFIX + "at")]
    | Annotated[After, Tag(UNION_TAG_PREFIX + "after")]
    | Annotated[Every, Tag(UNION_TAG_PREFIX + "every")]
    | Annotated[CronRule, Tag(UNION_TAG_PREFIX + "cron")],
    Discriminator(_MEMBER.tag),
    BeforeValidator(_MEMBER.check),
]

When = Annotated[
    Annotated[Now, Tag(UNION_TAG_PREFIX + "now")]
    | Annotated[At, Tag(UNION_TAG_PREFIX + "at")]
    | Annotated[After, Tag(UNION_TAG_PREFIX + "after")]
    | Annotated[Every, Tag(UNION_TAG_PREFIX + "every")]
    | Annotated[CronRule, Tag(UNION_TAG_PREFIX + "cron")]
    | Annotated[AnyOf, Tag(UNION_TAG_PREFIX + "any_of")],
    Discriminator(_WHEN.tag),
    BeforeValidator(_WHEN.check),
    Field(description="exactly one of now, at, after, every, cron, any_of"),
]

AnyOf.model_rebuild()
