"""Ids of schedules, runs, commands and dead letters: derived from what they name, never random."""

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
_FAILURE_GROUP: Final = uuid5(_HAREBELL, "failure group")
_REPLAY: Final = uuid5(_HAREBELL, "replay by request")
_STAMP: Final = "%Y%m%dT%H%M%S"

RunId: TypeAlias = str  # "<schedule id>@20261120T140000000Z"


class RunKey(NamedTuple):
    """The primary key of a run, time first."""  # a tuple: compared and hashed in great numbers

    scheduled_for: datetime
    schedule_id: UUID

    def __str__(self) -> RunId:
        at = self.scheduled_for
        stamp = _stamp(at if at.tzinfo is UTC else at.astimezone(UTC))
        return f"{self.schedule_id}@{stamp}"

    @classmethod
    def parse(cls, text: str) -> "RunKey":
        """Raises `Malformed` when the text is not a run id."""
        schedule, _, stamp = text.partition("@")
        try:
            moment = datetime.strptime(stamp[:-4], _STAMP).replace(
                tzinfo=UTC, microsecond=int(stamp[-4:-1]) * 1000
            )
            key = cls(moment, UUID(schedule))
        except ValueError:
            key = None
        if key is None or str(key) != text:
            reason = f"{text[:80]!r} is not a run id (<schedule id>@20261120T140000000Z)"
            raise InvalidInput(reason, field="run_id", code="invalid_run_id")
        return key


@lru_cache(4096)  # many runs share an instant; elsewhere an hour that comes twice equals itself
def _stamp(moment: datetime) -> str:
    at = moment.isoformat(timespec="milliseconds")
    date, time = at[:10].replace("-", ""), at[11:19].replace(":", "")
    return f"{date}T{time}{at[20:23]}Z"


def schedule_id(tenant: str, key: str) -> UUID:
    return uuid5(_BY_KEY, f"{tenant}/{key}")


def schedule_id_of_request(tenant: str, request_id: str, index: int | None) -> UUID:
    """For a schedule without a key. `index` is the place in an array, None outside one."""
    suffix = "" if index is None else f"/{index}"
    return uuid5(_BY_REQUEST, f"{tenant}/{request_id}{suffix}")


def run_id(schedule: UUID, scheduled_for: datetime) -> RunId:
    """Same schedule and same instant give the same id, so a repeat is recognisable."""
    return str(RunKey(scheduled_for, schedule))


def dead_run_id(run: RunId, replay_number: int) -> UUID:
    return uuid5(_DEAD_LETTER, f"{run}/{replay_number}")


def dead_message_id(queue: str, message_id: str | None, body: bytes) -> UUID:
    return uuid5(_DEAD_LETTER, f"{queue}/{message_id or ''}/{sha256(body).hexdigest()}")


def failure_group_id(tenant: str, target: str, error_code: str, message: str) -> UUID:
    """Of failures that are the same but for what differs each time."""
    return uuid5(_FAILURE_GROUP, f"{tenant}\n{target}\n{error_code}\n{message}")


def replay_job_id(tenant: str, request_id: str, index: int | None) -> UUID:
    """Of a replay that was asked for. `index` is the place in an array, None outside one."""
    suffix = "" if index is None else f"/{index}"
    return uuid5(_REPLAY, f"{tenant}/{request_id}{suffix}")


def edited_dead_letter_id(letter: UUID, target: bytes) -> UUID:
    """Of the copy of a dead letter that calls this instead."""
    return uuid5(_DEAD_LETTER, f"{letter}/{sha256(target).hexdigest()}")
