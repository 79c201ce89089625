"""What a schedule is: when, what, and the policies, as a user defines it."""

from datetime import timedelta
from hashlib import sha256
from typing import Annotated, Final

import orjson
from pydantic import Field, field_validator

from harebell.contract.message import Command, fault
from harebell.contract.policy import CatchUp, Limit, OnUnknown, Overlap, RecoveryClass, RetryPolicy
from harebell.contract.scalars import (
    AttemptTimeout,
    CheckedJson,
    Count,
    Duration,
    PoolName,
    ShortText,
    Tag,
)
from harebell.contract.target import Target
from harebell.contract.when import When

MAX_TAGS: Final = 32
MAX_METADATA: Final = 16 * 1024  # bytes of JSON
MAX_FAILURES: Final = 1000  # consecutive runs
DEFAULT_PRIORITY: Final = 5
DEFAULT_POOL: Final = "default"


class Definition(Command):
    """Everything that makes one version of a schedule."""

    key: ShortText | None = None
    name: ShortText | None = None
    owner: ShortText | None = None
    class_: RecoveryClass = Field(default=RecoveryClass.NORMAL, alias="class")
    priority: Annotated[int, Field(ge=1, le=10, strict=True)] = DEFAULT_PRIORITY
    pool: PoolName = DEFAULT_POOL
    when: When
    target: Target
    timeout: AttemptTimeout = timedelta(seconds=30)
    expires_after: Duration | None = None
    retry: RetryPolicy = RetryPolicy()
    overlap: Overlap = Overlap.ALLOW
    limit: Limit | None = None
    catch_up: CatchUp = CatchUp()
    on_unknown: OnUnknown = OnUnknown.RETRY
    pause_after_failures: Annotated[Count, Field(le=MAX_FAILURES)] | None = None
    tags: Annotated[list[Tag], Field(max_length=MAX_TAGS)] = []
    metadata: dict[str, CheckedJson] = {}

    @field_validator("metadata")
    @classmethod
    def _small(cls, metadata: dict[str, object]) -> dict[str, object]:
        if len(orjson.dumps(metadata)) > MAX_METADATA:
            raise fault("too_large", f"metadata is over {MAX_METADATA} bytes")
        return metadata

    def fingerprint(self) -> str:
        """Same body, same fingerprint; a default written out counts as left out."""
        body = self.model_dump(mode="json", by_alias=True, include=_NAMES, exclude_defaults=True)
        return sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


_NAMES: Final = set(Definition.model_fields)  # of a command it is part of, no other
