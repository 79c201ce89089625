"""When a cron expression runs in its time zone: the only place that knows.

`dialect` checks the text, `calendar` matches local times, `search` makes instants of them.
"""

from harebell.domain.cron.expression import Cron

__all__ = ["Cron"]
