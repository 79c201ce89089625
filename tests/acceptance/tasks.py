"""Tasks that tests have executors run."""

import os
import signal


def kill_executor() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
