"""Cron expressions: the scheduled times of an expression in its time zone.

* parser         expressions in the dialect of Harebell, checked and converted to numbers
* fields         the fields of an expression, with names, ranges, steps and hashed values
* expression     `Cron`, a checked expression in a time zone
* timezones      time zones by name, and their clock changes
* foreign_forms  forms of other schedulers, and what to write instead
* next_time      the next scheduled time, across gaps and overlaps of local time
* calendar       matching dates, and their first one from a date on
* matcher        matching local times, by croniter
* dst_notes      notes about clock changes for a preview
"""

from harebell.domain.cron.expression import Cron

__all__ = ["Cron"]
