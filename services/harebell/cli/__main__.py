"""The entry point of the `harebell` command."""

import gc
from datetime import UTC, datetime

from harebell.cli.app import app
from harebell.cli.framework.process import ProcessContext


def main() -> None:
    """Run the command line of this process."""
    try:
        app(prog_name="harebell", obj=ProcessContext(now=lambda: datetime.now(UTC)))
    finally:
        gc.freeze()  # or the interpreter collects all modules at its end, which costs 100 ms


if __name__ == "__main__":
    main()
