"""What `H` stands for: a number drawn from the schedule's id, the same for ever."""

from hashlib import sha256
from typing import Final
from uuid import UUID

# Eight bytes against at most 60 values: no value is favoured measurably.
_DRAWN_BYTES: Final = 8


def hashed_value(schedule_id: UUID, field: str, size: int) -> int:
    """Return a number in [0, size). The fields of one schedule are drawn independently."""
    digest = sha256(schedule_id.bytes + field.encode()).digest()
    return int.from_bytes(digest[:_DRAWN_BYTES]) % size
