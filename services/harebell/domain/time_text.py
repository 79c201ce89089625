"""Times in sentences for people: the time of day in UTC, with the date on another day."""

from datetime import datetime


def clock_text(time: datetime, *, now: datetime) -> str:
    """Return `09:00:05 UTC`, or `2026-11-21 09:00:05 UTC` if `now` is on another day."""
    form = "%H:%M:%S UTC" if time.date() == now.date() else "%Y-%m-%d %H:%M:%S UTC"
    return time.strftime(form)
