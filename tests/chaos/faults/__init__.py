"""Every fault of the matrix that is made by itself; importing this makes them known."""

from tests.chaos.faults import processes
from tests.chaos.faults.registry import FAULTS, Fault, chosen

__all__ = ["FAULTS", "Fault", "chosen", "processes"]
