"""`python -m harebell.executor`."""

import os

from harebell.executor.service import serve
from harebell.kernel.lifecycle import start
from harebell.kernel.settings import ExecutorSettings

if __name__ == "__main__":
    start(ExecutorSettings, "executor", serve, os.environ)
