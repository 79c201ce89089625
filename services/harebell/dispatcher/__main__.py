"""`python -m harebell.dispatcher`: holds tickets to the moment, then hands them to executors."""

import os

from harebell.dispatcher.service import serve
from harebell.kernel.lifecycle import run_service
from harebell.kernel.settings import DispatcherSettings

if __name__ == "__main__":
    run_service(DispatcherSettings, "dispatcher", serve, os.environ)
