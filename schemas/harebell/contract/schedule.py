"""What a schedule is: when, what, and the policies, as a user defines it."""

from collections.abc import Mapping
from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Any, Final

import orjson
from pydantic import Field, field_validator

from harebell.contract.message import StrictMessage, empty_default, invalid
from harebell.contract.policy import (
    CatchUp,
    OnUnknown,
    Overlap,
    RateLimit,
    RecoveryClass,
    RetryPolicy,
)
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
MAX_METADATA: Final = 16 * 1024  # bytes of JSON
MAX_FAILURES: Final = 1000  # consecutive runs
DEFAULT_PRIORITY: Final = 5
DEFAULT_POOL: Final = "default"


class SchedulingPolicy(StrictMessage):
    """Which runs a schedule owes, and where they are worked on: all that planning reads of it."""

    key: ShortText | None = None
    priority: Annotated[int, Field(ge=1, le=10, strict=True)] = DEFAULT_PRIORITY
    pool: PoolName = DEFAULT_POOL
    when: When
    expires_after: Duration | None = None
    catch_up: CatchUp = CatchUp()
    on_unknown: OnUnknown = OnUnknown.RETRY
    pause_after_failures: Annotated[Count, Field(le=MAX_FAILURES)] | None = None


class Definition(SchedulingPolicy):
    """Everything that makes one version of a schedule."""

    name: ShortText | None = None
    owner: ShortText | None = None
    class_: RecoveryClass = Field(default=RecoveryClass.NORMAL, alias="class")
    target: Target
    timeout: AttemptTimeout = timedelta(seconds=30)
    retry: RetryPolicy = RetryPolicy()
    overlap: Overlap = Overlap.ALLOW
    rate_limit: RateLimit | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] = empty_default(list)
    metadata: dict[str, CheckedJson] = empty_default(dict)

    @field_validator("metadata")
    @classmethod
    def _small(cls, metadata: dict[str, object]) -> dict[str, object]:
        if len(orjson.dumps(metadata)) > MAX_METADATA:
            raise invalid("too_large", f"metadata is over {MAX_METADATA} bytes")
        return metadata

    def to_full_json(self) -> dict[str, Any]:
        """As JSON, for people: with every default; of a command it is part of, no other field."""
        return self.model_dump(mode="json", by_alias=True, include=_NAMES, exclude_none=True)

    def to_json(self) -> dict[str, Any]:
        """As JSON, as short as can be: no default of version 1 may ever change."""
        return self.model_dump(mode="json", by_alias=True, include=_NAMES, exclude_defaults=True)

    def fingerprint(self) -> str:
        """Same body, same fingerprint; a default written out counts as left out."""
        return fingerprint_of(canonical_json(self.to_json()))


_NAMES: Final = set(Definition.model_fields)


def canonical_json(told: Mapping[str, Any]) -> str:
    """As it is stored: the same of the same body."""
    return orjson.dumps(told, option=orjson.OPT_SORT_KEYS).decode()


def fingerprint_of(text: str) -> str:
    """Of what `written` gave."""
    return sha256(text.encode()).hexdigest()
