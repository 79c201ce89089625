"""`python -m harebell.dispatcher`: run the dispatcher until SIGTERM."""

import os

from harebell.bootstrap.process import run_service
from harebell.dispatcher.service import serve
from harebell.runtime.settings import DispatcherSettings

if __name__ == "__main__":
    run_service(DispatcherSettings, "dispatcher", serve, environ=os.environ)
