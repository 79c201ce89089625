"""Tests of a soak: the load of each chapter and the choice of the faults."""

from collections import Counter
from pathlib import Path
from random import Random

from tests.acceptance.recording_target import Target
from tests.chaos.faults import select_faults
from tests.chaos.generators import LoadGenerator
from tests.chaos.history import Verb
from tests.chaos.sample_histories import NOON
from tests.chaos.soak import CHAPTER_SPAN, SCHEDULES_PER_KIND, Soak

CHAPTERS = 4
DURATION = CHAPTERS * CHAPTER_SPAN  # seconds


def test_soak_puts_new_schedules_in_each_chapter(tmp_path: Path) -> None:
    soak = Soak.create(7, select_faults(""), duration=DURATION, interval=30.0)
    generator = LoadGenerator(
        random=Random(soak.name),  # noqa: S311  # for a repetition, not for a secret
        target=Target(tmp_path / "calls.jsonl", port=1),
        path=soak.name,
        started_at=NOON,
        span=DURATION,
    )

    script = soak.script(generator)

    puts = [step for step in script.steps if step.verb is Verb.PUT]
    created = [step for step in puts if "expected_version" not in step.body]
    chapters = Counter(_chapter(step.key) for step in created)
    count = SCHEDULES_PER_KIND * len({_kind(step.key) for step in created})
    assert len({step.key for step in created}) == len(created)
    assert chapters == dict.fromkeys(range(CHAPTERS), count)
    assert all(step.at // CHAPTER_SPAN >= _chapter(step.key) for step in script.steps)
    assert max(step.at for step in script.steps) <= DURATION + CHAPTER_SPAN


def test_soak_selects_only_suitable_faults() -> None:
    soak = Soak.create(7, select_faults("10a,11a,32a"), duration=DURATION, interval=30.0)

    assert [fault.row for fault in soak.faults] == ["10a"]


def _chapter(key: str) -> int:
    return int(key.partition("-")[0])


def _kind(key: str) -> str:
    return key.split("-")[1]
