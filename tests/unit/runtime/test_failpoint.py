"""Failpoints: inert unless armed, and only at the step they name."""

from collections.abc import Iterator

import pytest

from harebell.contract.errors import InvalidInput, Transient
from harebell.runtime import failpoint
from harebell.runtime.clock import monotonic
from harebell.runtime.failpoint import Failpoint, InjectedFailure

STEP = "ticker.before_commit"


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoint.arm(None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{STEP}:kill", Failpoint(STEP, "kill")),
        (f"{STEP}:stop", Failpoint(STEP, "stop")),
        (f"{STEP}:term", Failpoint(STEP, "term")),
        (f"{STEP}:raise", Failpoint(STEP, "raise")),
        (f"{STEP}:sleep=0.25", Failpoint(STEP, "sleep", 0.25)),
    ],
)
def test_failpoint_has_a_name_and_an_action(text: str, expected: Failpoint) -> None:
    assert Failpoint.parse(text) == expected


@pytest.mark.parametrize("text", ["", STEP, f"{STEP}:", ":kill", f"{STEP}:burn", f"{STEP}:sleep=x"])
def test_malformed_failpoint_is_rejected_with_its_setting(text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Failpoint.parse(text)

    assert refused.value.field == "HAREBELL_FAILPOINT"


async def test_failpoint_without_arming_has_no_effect() -> None:
    await failpoint.reach(STEP)


async def test_only_the_armed_failpoint_acts() -> None:
    failpoint.arm(Failpoint.parse(f"{STEP}:raise"))

    await failpoint.reach("ticker.after_commit")
    with pytest.raises(InjectedFailure) as injected:
        await failpoint.reach(STEP)

    assert isinstance(injected.value, Transient)


async def test_failpoint_sleeps() -> None:
    failpoint.arm(Failpoint.parse(f"{STEP}:sleep=0.02"))
    before = monotonic()

    await failpoint.reach(STEP)

    assert monotonic() - before >= 0.02
