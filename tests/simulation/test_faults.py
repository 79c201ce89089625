"""Tests of the simulation: the services keep every rule, and each mutation violates one.

Each simulation runs in its own process, because the metrics and logs of a service belong to a
process.
A seed gives the same scenario only if sets have the same order.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCENARIOS = 60
TIMEOUT = 600  # seconds, on a machine with other work

# Each mutation: the number of scenarios to search, the text of the violation, and the seed of a
# scenario with it. The test tries this seed first, because the search needs up to hundreds of
# scenarios. A code change can make a seed stale, and then only the search finds the violation.
FOUND = {
    "claim_ignores_seq": (80, "started", 1),
    "commit_before_publish": (5, "no ticket published", 0),
    "cancel_keeps_runs": (20, ": of version", 1),
    "one_attempt_too_many": (20, "attempt", 0),
    "complete_without_fencing": (1_000, "a success was recorded without", 887),
    "start_without_lease": (150, "started", 51),
    "expire_leases_early": (200, "started", 46),
    "ignore_lost_tickets": (10, "the work did not end", 1),
    "change_keeps_later_runs": (60, ": of version", 1),
    "activate_versions_early": (80, ": of version", 10),
    "activate_versions_by_number": (80, ": of version", 9),
    "supersede_silently": (300, "a response named it: False", 80),
    "repeat_gets_new_request_id": (80, "the triggered runs are wrong", 6),
    "lose_dead_letters": (10, "has no dead letter", 0),
    "replay_dead_letters_again": (2_000, "a message was dead-lettered", 44),
    "count_replayed_runs_again": (20, "executions and failures", 0),
    "forget_ended_runs": (5, "executions and failures", 0),
    "replay_keeps_dead_letters_open": (10, "its dead letter stayed open", 0),
}


def run_simulation(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(  # noqa: S603  # a fixed command
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.requirement("S127")
def test_services_keep_every_rule_in_scenarios_with_faults() -> None:
    code, output = run_simulation("--seeds", str(SCENARIOS))

    assert code == 0, output
    assert output.startswith(f"{SCENARIOS} scenarios passed")


def test_seed_gives_the_same_scenario_in_every_process() -> None:
    first, second = (run_simulation("--seed", "5", "--verbose")[1].splitlines() for _ in range(2))

    *steps, _, states, counts = first  # the omitted line contains the duration
    assert second[:-3] == steps
    assert second[-2:] == [states, counts]
    assert len(steps) > 20


@pytest.mark.parametrize("mutation", FOUND)
def test_simulation_finds_a_violation_when_a_rule_is_broken(mutation: str) -> None:
    scenarios, text, seed = FOUND[mutation]
    assert seed < scenarios

    code, output = run_simulation("--mutation", mutation, "--seed", str(seed))
    if code == 0 or text not in output.splitlines()[-2]:
        code, output = run_simulation("--mutation", mutation, "--seeds", str(scenarios))

    assert code == 1, output
    assert text in output.splitlines()[-2]
    assert output.splitlines()[-1].startswith("repeat with: python -m tests.simulation --seed")
