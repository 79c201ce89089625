"""Ids of schedules, runs, commands and dead letters. Each id is derived, and none is random."""

from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from harebell.contract.errors import InvalidInput

_HAREBELL: Final = UUID("6f0a7c0e-3d2b-5b53-9c1e-4d7a0f2b8e11")
_BY_KEY: Final = uuid5(_HAREBELL, "schedule by key")
_BY_REQUEST: Final = uuid5(_HAREBELL, "schedule by request")
_DEAD_LETTER: Final = uuid5(_HAREBELL, "dead letter")
_DEAD_LETTER_OF_TENANT: Final = uuid5(_HAREBELL, "dead letter of a tenant")
_IMPORTED_DEAD_LETTER: Final = uuid5(_HAREBELL, "imported dead letter of a tenant")
_FAILURE_GROUP: Final = uuid5(_HAREBELL, "failure group")
_REPLAY_JOB: Final = uuid5(_HAREBELL, "replay by request")
_TIMESTAMP: Final = "%Y%m%dT%H%M%S"

RunId: TypeAlias = str  # "<schedule id>@20261120T140000000Z"


class RunKey(NamedTuple):
    """The primary key of a run, with the time first. Lists of runs compare and hash many keys."""

    scheduled_for: datetime
    schedule_id: UUID

    def __str__(self) -> RunId:
        at = self.scheduled_for
        timestamp = _timestamp(at if at.tzinfo is UTC else at.astimezone(UTC))
        return f"{self.schedule_id}@{timestamp}"

    @classmethod
    def parse(cls, text: str) -> "RunKey":
        """Return the key of a run id. Raise `InvalidInput` for another text."""
        schedule, _, timestamp = text.partition("@")
        try:
            time = datetime.strptime(timestamp[:-4], _TIMESTAMP).replace(
                tzinfo=UTC, microsecond=int(timestamp[-4:-1]) * 1000
            )
            key = cls(time, UUID(schedule))
        except ValueError:
            key = None
        if key is None or str(key) != text:
            form = "<schedule id>@20261120T140000000Z"
            reason = f"The run id must have the form {form}, not {text[:80]!r}."
            raise InvalidInput(reason, field="run_id", code="invalid_run_id")
        return key


# In other zones the two instants of a repeated hour compare as equal, so the cache takes UTC only.
@lru_cache(4096)  # many runs share an instant
def _timestamp(time: datetime) -> str:
    at = time.isoformat(timespec="milliseconds")
    date, clock = at[:10].replace("-", ""), at[11:19].replace(":", "")
    return f"{date}T{clock}{at[20:23]}Z"


def schedule_id(tenant: str, key: str) -> UUID:
    """Return the id of a schedule with a key."""
    return uuid5(_BY_KEY, f"{tenant}/{key}")


def schedule_id_of_request(tenant: str, request_id: str, index: int | None) -> UUID:
    """Return the id of a schedule without a key. `index` is the position in an array, or None."""
    suffix = "" if index is None else f"/{index}"
    return uuid5(_BY_REQUEST, f"{tenant}/{request_id}{suffix}")


def run_id(schedule: UUID, scheduled_for: datetime) -> RunId:
    """Return the run id, which is the same for every repeat of the same run."""
    return str(RunKey(scheduled_for, schedule))


def dead_run_id(tenant: str, run: RunId, replay_number: int) -> UUID:
    """Return the id of the dead letter of a run."""
    return uuid5(_DEAD_LETTER_OF_TENANT, f"{tenant}/{run}/{replay_number}")


def dead_message_id(tenant: str, queue: str, *, message_id: str | None, body: bytes) -> UUID:
    """Return the id of the dead letter of a message."""
    return uuid5(_DEAD_LETTER_OF_TENANT, f"{tenant}/{_message(queue, message_id, body)}")


def imported_dead_letter_id(dead_letter: UUID) -> UUID:
    """Return the id of an import whose run or message no service has reported to its tenant.

    `dead_letter` is the id that a report would have, so the import does not occupy this id.
    """
    return uuid5(_IMPORTED_DEAD_LETTER, str(dead_letter))


def older_dead_run_id(run: RunId, replay_number: int) -> UUID:
    """Return the id that the dead letter of a run had in versions without the tenant in ids."""
    return uuid5(_DEAD_LETTER, f"{run}/{replay_number}")


def older_dead_message_id(queue: str, message_id: str | None, body: bytes) -> UUID:
    """Return the id that the dead letter of a message had without the tenant in ids."""
    return uuid5(_DEAD_LETTER, _message(queue, message_id, body))


def _message(queue: str, message_id: str | None, body: bytes) -> str:
    return f"{queue}/{message_id or ''}/{sha256(body).hexdigest()}"


def failure_group_id(tenant: str, target: str, *, error_code: str, message: str) -> UUID:
    """Return the id of a failure group. `message` is the normalised error message."""
    return uuid5(_FAILURE_GROUP, f"{tenant}\n{target}\n{error_code}\n{message}")


def replay_job_id(tenant: str, request_id: str, index: int | None) -> UUID:
    """Return the id of a replay job. `index` is the position in an array, or None."""
    suffix = "" if index is None else f"/{index}"
    return uuid5(_REPLAY_JOB, f"{tenant}/{request_id}{suffix}")


def edited_dead_letter_id(dead_letter: UUID, target: bytes) -> UUID:
    """Return the id of the copy of a dead letter that calls another target."""
    return uuid5(_DEAD_LETTER, f"{dead_letter}/{sha256(target).hexdigest()}")
