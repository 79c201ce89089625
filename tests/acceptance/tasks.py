"""Tasks that tests have executors run."""

import os
import signal
from typing import Any


def kill_executor(_: dict[str, Any]) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
