"""The days that `runs` and `attempts` have partitions for."""

from typing import Final

DAYS_BACK: Final = 30  # the retention limit: no run is older
DAYS_AHEAD: Final = 8
ENSURE: Final = (
    f"SELECT harebell_ensure_partitions(current_date - {DAYS_BACK}, current_date + {DAYS_AHEAD})"
)
