"""The entry point of the executor: `python -m harebell.executor`."""

import os

from harebell.bootstrap.process import run_service
from harebell.executor.service import serve
from harebell.runtime.settings import ExecutorSettings

if __name__ == "__main__":
    run_service(ExecutorSettings, "executor", serve, environ=os.environ)
