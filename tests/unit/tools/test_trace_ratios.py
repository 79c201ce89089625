"""The ratios of the CPU time with traces and without them, from samples of a disturbed machine."""

from typing import Any

from tests.benchmarks.workloads.traces import cpu_ratios


def sample(cpu_us: float, python_ns: float = 50.0) -> dict[str, Any]:
    return {"cpu_us_per_run": {"total": cpu_us}, "python_ns": python_ns}


def test_ratio_corrects_the_speed_of_the_machine() -> None:
    rounds = [{"off": sample(1_000.0), "1 %": sample(2_080.0, python_ns=100.0)}]

    assert cpu_ratios(rounds) == {"1 %": 1.04}


def test_ratio_is_the_median_of_the_rounds() -> None:
    rounds = [
        {"off": sample(1_000.0), "1 %": sample(each), "all lines": sample(2 * each)}
        for each in (1_020.0, 3_000.0, 1_010.0)
    ]

    assert cpu_ratios(rounds) == {"1 %": 1.02, "all lines": 2.04}
