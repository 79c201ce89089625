"""Previews and whys as users see them. Fields may only be added."""

from collections.abc import Sequence
from datetime import datetime

from harebell.contract.scalars import instant_text
from harebell.intake.story import ScheduleHistory
from harebell.intake.views import Row, View, attempt_view, run_view
from harebell.intake.why import Explanation
from harebell.kernel.preview import upcoming_runs


def preview_view(story: ScheduleHistory, after: datetime, count: int) -> View:
    """`state` says whether those instants will run as things stand."""
    found = upcoming_runs(story.editions_after(after), after=after, count=count, skips=story.skips)
    return {
        **_named(story),
        "paused_until": _text(story.paused_until),
        "instants": [each.view() for each in found],
    }


def explanation_view(
    story: ScheduleHistory, why: Explanation, row: Row | None, attempts: Sequence[Row]
) -> View:
    return {
        **_named(story),
        "at": _text(why.at),
        "verdict": why.verdict,
        "reason": why.code,
        "words": why.words,
        "notes": list(why.notes),
        "version": None if why.edition is None else why.edition.number,
        "before": _text(why.before),
        "after": _text(why.behind),
        "run": None if row is None else run_view(row),
        "attempts": [attempt_view(each) for each in attempts],
    }


def _named(story: ScheduleHistory) -> View:
    return {"id": str(story.id), "key": story.key, "state": story.state}


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else instant_text(moment)
