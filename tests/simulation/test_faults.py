"""Tests of the simulation: the services keep every rule, and each mutation violates one.

Each simulation runs in its own process, because the metrics and logs of a service belong to a
process.
A seed gives the same scenario only if sets have the same order.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.simulation.mutations import MUTATIONS

ROOT = Path(__file__).parents[2]
TIMEOUT = 600  # seconds, on a machine with other work


@dataclass(frozen=True, kw_only=True)
class Search:
    """The search for a violation with this text, in scenarios with these rates of faults.

    No seed is part of the search, because every change of the code gives a seed another scenario.
    """

    text: str
    rates: str = ""


# The rates cause the violation in at least 3 of 100 scenarios, so that a search without it has a
# probability below one in a million.
SEARCHED_SCENARIOS = 2_000
SEARCHES = {
    "claim_ignores_seq": Search(
        text="started", rates="crashed=0.012,duplicated=0.3,late=0.3,long=0.5"
    ),
    "commit_before_publish": Search(text="no ticket published"),
    "cancel_keeps_runs": Search(text=": of version"),
    "one_attempt_too_many": Search(text="attempt", rates="failed=0.5"),
    "complete_without_fencing": Search(
        text="a success was recorded without", rates="frozen_attempt=0.3,long=0.9"
    ),
    "start_without_lease": Search(text="started", rates="frozen_claim=0.2"),
    "expire_leases_early": Search(text="started", rates="long=0.9"),
    "ignore_lost_tickets": Search(text="the work did not end", rates="lost=0.15"),
    "change_keeps_later_runs": Search(text=": of version"),
    "activate_versions_early": Search(text=": of version"),
    "activate_versions_by_number": Search(text=": of version"),
    "supersede_silently": Search(text="a response named it: False"),
    "count_replayed_runs_again": Search(text="executions and failures"),
    "forget_ended_runs": Search(text="executions and failures"),
    "repeat_gets_new_request_id": Search(
        text="the triggered runs are wrong", rates="unanswered=0.06"
    ),
    "lose_dead_letters": Search(text="has no dead letter", rates="permanent=0.3"),
    "replay_dead_letters_again": Search(
        text="a message was dead-lettered", rates="permanent=0.9,late=0.5,duplicated=0.5"
    ),
    "replay_keeps_dead_letters_open": Search(
        text="its dead letter stayed open", rates="permanent=0.3"
    ),
}


def run_simulation(*arguments: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    done = subprocess.run(  # noqa: S603  # a fixed command
        command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


@pytest.mark.requirement("S127")
@pytest.mark.parametrize("scenarios", [20, pytest.param(300, marks=pytest.mark.long)])
def test_services_keep_every_rule_in_scenarios_with_faults(scenarios: int) -> None:
    code, output = run_simulation("--seeds", str(scenarios))

    assert code == 0, output
    assert output.startswith(f"{scenarios} scenarios passed")


@pytest.mark.long
def test_seed_gives_the_same_scenario_in_every_process() -> None:
    first, second = (run_simulation("--seed", "5", "--verbose")[1].splitlines() for _ in range(2))

    *steps, _, states, counts = first  # the omitted line contains the duration
    assert second[:-3] == steps
    assert second[-2:] == [states, counts]
    assert len(steps) > 20


@pytest.mark.long
@pytest.mark.parametrize("mutation", SEARCHES)
def test_simulation_finds_a_violation_when_a_rule_is_broken(mutation: str) -> None:
    search = SEARCHES[mutation]

    code, output = run_simulation(
        f"--mutation={mutation}",
        f"--seeds={SEARCHED_SCENARIOS}",
        f"--rates={search.rates}",
        f"--expect={search.text}",
    )

    assert code == 1, output
    assert search.text in output.splitlines()[-2]
    assert output.splitlines()[-1].startswith("repeat with: python -m tests.simulation --seed")


def test_each_mutation_has_a_search() -> None:
    assert set(SEARCHES) == set(MUTATIONS)
