"""A soak's load is drawn as that of waves, chapter after chapter, and its faults are mixed ones."""

from collections import Counter
from pathlib import Path
from random import Random

from tests.acceptance.recording_target import Target
from tests.chaos.faults import chosen
from tests.chaos.generators import Drawing
from tests.chaos.history import Verb
from tests.chaos.sample_histories import NOON
from tests.chaos.soak import CHAPTER, ROUNDS, Soak

LASTING = 4 * CHAPTER  # seconds


def test_each_chapter_has_schedules_of_its_own(tmp_path: Path) -> None:
    soak = Soak.of(7, chosen(""), LASTING, every=30.0)
    drawing = Drawing(
        Random(soak.name),  # noqa: S311  # to be repeated, not to be secret
        Target(tmp_path / "calls.jsonl", port=1),
        soak.name,
        NOON,
        LASTING,
    )
    script = soak.script(drawing)

    puts = [step for step in script.steps if step.verb is Verb.PUT]
    created = [step for step in puts if "expected_version" not in step.body]
    chapters = Counter(int(step.key.partition("-")[0]) for step in created)
    assert len({step.key for step in created}) == len(created)
    assert chapters == dict.fromkeys(range(4), ROUNDS * len({_kind(step.key) for step in created}))
    assert all(step.at // CHAPTER >= int(step.key.partition("-")[0]) for step in script.steps)
    assert max(step.at for step in script.steps) <= LASTING + CHAPTER


def test_only_faults_that_a_soak_can_bear_are_drawn() -> None:
    soak = Soak.of(7, chosen("10a,11a,32a"), LASTING, every=30.0)

    assert [fault.row for fault in soak.faults] == ["10a"]


def _kind(key: str) -> str:
    return key.split("-")[1]
