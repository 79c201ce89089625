"""Which letters a filter means, as a condition on rows of `dead_letters AS letter`."""

from dataclasses import dataclass
from typing import Final

from harebell.contract.desk import DeadLetterFilter

# Only what is given is asked: one statement for all would be planned as if all were.
_CONDITIONS: Final = {
    "group": "letter.group_id = ${}",
    "key": "letter.key = ${}",
    "tag": "letter.schedule_id IN (SELECT id FROM schedules WHERE tags @> ARRAY[${}::text])",
    "error": "letter.error_code = ${}",
    "since": "letter.dead_at >= ${}",
    "before": "letter.dead_at < ${}",
    "replayed": "(coalesce(letter.series, 1) > 1) = ${}",
}


@dataclass(frozen=True, slots=True)
class Matching:
    """`condition` has the numbers of its parameters, `values` are theirs."""

    condition: str
    values: list[object]


def filter_conditions(asked: DeadLetterFilter, *, after: int) -> Matching:
    """Behind a statement's first parameters, of which there are `after`."""
    given = {name: value for name in _CONDITIONS if (value := getattr(asked, name)) is not None}
    parts = [_CONDITIONS[name].format(after + place) for place, name in enumerate(given, 1)]
    return Matching(" AND ".join(parts) or "true", [*given.values()])
