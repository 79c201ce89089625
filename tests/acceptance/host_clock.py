"""The clock of one host, which libfaketime changes for a service.

Only the time of day changes.
The monotonic clock continues, as if NTP or a person had set the clock.
"""

from dataclasses import dataclass
from pathlib import Path

LIBRARIES = Path("/usr/lib")  # Debian installs the library in <architecture>/faketime
LIBRARY = "*/faketime/libfaketimeMT.so.1"  # for programs with threads


@dataclass(frozen=True)
class HostClock:
    """The clock of one host, which a test may set while services run there."""

    file: Path

    def set(self, seconds: float) -> None:
        """Set the clock to that many seconds ahead of the true time, or behind it."""
        written = self.file.with_suffix(".new")
        written.write_text(f"{seconds:+g}s\n")
        written.replace(self.file)  # atomic, so that a service never reads half of the file

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment variables of a process on that host."""
        library = next(LIBRARIES.glob(LIBRARY), None)
        assert library is not None, "the Debian package faketime is not installed"
        return {
            "LD_PRELOAD": str(library),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_NO_CACHE": "1",  # a service reads a new time at once
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }
