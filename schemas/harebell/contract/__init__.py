"""The contract: every message on the wire, checked in one place. Pure; does no I/O."""

from harebell.contract._version import __version__

__all__ = ["__version__"]
