"""`python -m harebell.executor`."""

import os

from harebell.executor.service import serve
from harebell.kernel.lifecycle import run_service
from harebell.kernel.settings import ExecutorSettings

if __name__ == "__main__":
    run_service(ExecutorSettings, "executor", serve, os.environ)
