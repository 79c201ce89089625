"""The definition of a schedule: its times, its target and its policies, as a user writes them."""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Final

import orjson
from pydantic import Field, field_validator

from harebell.contract.calendar import (
    MAX_BLACKOUTS,
    MAX_SCHEDULE_CALENDARS,
    PinnedCalendar,
    ScheduleCalendars,
)
from harebell.contract.message import StrictMessage, empty_default, invalid
from harebell.contract.policy import (
    CatchUp,
    Concurrency,
    OnUnknown,
    Overlap,
    RateLimit,
    RecoveryClass,
    RetryPolicy,
)
from harebell.contract.secret import SecretName
from harebell.contract.target import Target
from harebell.contract.types import (
    AttemptTimeout,
    CheckedJson,
    Count,
    Duration,
    PoolName,
    ShortText,
    Tag,
)
from harebell.contract.when import When

MAX_TAGS: Final = 32
MAX_PINNED_CALENDARS: Final = 2 * MAX_SCHEDULE_CALENDARS + MAX_BLACKOUTS
MAX_METADATA: Final = 16 * 1024  # bytes of JSON
MAX_CONSECUTIVE_FAILURES: Final = 1000  # runs
MAX_SIGNING_KEYS: Final = 4  # of one schedule; each key adds a signature to each call
DEFAULT_PRIORITY: Final = 5
DEFAULT_POOL: Final = "default"


class SchedulingPolicy(StrictMessage):
    """The fields of a definition that planning reads."""

    key: ShortText | None = None
    priority: Annotated[int, Field(ge=1, le=10, strict=True)] = DEFAULT_PRIORITY
    pool: PoolName = DEFAULT_POOL
    when: When
    calendars: ScheduleCalendars | None = None
    # The versions of these calendars that are in force. Only Harebell sets the field.
    pinned_calendars: Annotated[list[PinnedCalendar], Field(max_length=MAX_PINNED_CALENDARS)] = (
        empty_default(list)
    )
    expires_after: Duration | None = None
    catch_up: CatchUp = CatchUp()
    on_unknown: OnUnknown = OnUnknown.RETRY
    pause_after_failures: Annotated[Count, Field(le=MAX_CONSECUTIVE_FAILURES)] | None = None


class Definition(SchedulingPolicy):
    """The complete content of one version of a schedule."""

    name: ShortText | None = None
    owner: ShortText | None = None
    class_: RecoveryClass = Field(default=RecoveryClass.NORMAL, alias="class")
    target: Target
    timeout: AttemptTimeout = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    overlap: Overlap = Overlap.ALLOW
    rate_limit: RateLimit | None = None
    concurrency: Concurrency | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] = empty_default(list)
    metadata: dict[str, CheckedJson] = empty_default(dict)
    # The secrets with the keys that sign the calls, instead of those of the tenant's policy.
    sign: Annotated[list[SecretName], Field(max_length=MAX_SIGNING_KEYS)] = empty_default(list)

    @field_validator("metadata")
    @classmethod
    def _check_size(cls, metadata: dict[str, object]) -> dict[str, object]:
        if (size := len(orjson.dumps(metadata))) > MAX_METADATA:
            reason = f"The metadata must have at most {MAX_METADATA} bytes, not {size}."
            raise invalid("too_large", reason)
        return metadata

    def to_full_json(self) -> dict[str, Any]:
        """Return the definition as JSON with every default, without fields of a subclass."""
        return self.model_dump(mode="json", by_alias=True, include=_NAMES, exclude_none=True)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON without defaults.

        Stored definitions omit defaults, so a default of version 1 must never change.
        """
        return self.model_dump(mode="json", by_alias=True, include=_NAMES, exclude_defaults=True)

    def fingerprint(self) -> str:
        """Return the same text for equal definitions, whether they state a default or omit it."""
        return fingerprint_of(canonical_json(self.to_json()))


_NAMES: Final = set(Definition.model_fields)


def canonical_json(definition: Mapping[str, Any]) -> str:
    """Return the stored text of a definition, which is the same for equal definitions."""
    return orjson.dumps(definition, option=orjson.OPT_SORT_KEYS).decode()


def fingerprint_of(text: str) -> str:
    """Return the fingerprint of a text that `canonical_json` returned."""
    return sha256(text.encode()).hexdigest()
