"""Tasks that executors run for the tests."""

import os
import signal
from typing import Any


def kill_executor(_: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
