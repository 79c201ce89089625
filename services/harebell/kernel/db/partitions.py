"""The days that `runs` and `attempts` have partitions for."""

from typing import Final

from harebell.kernel.ledger import RETENTION

DAYS_BACK: Final = RETENTION.days
DAYS_AHEAD: Final = 8
ENSURE: Final = (
    f"SELECT harebell_ensure_partitions(current_date - {DAYS_BACK}, current_date + {DAYS_AHEAD})"
)
