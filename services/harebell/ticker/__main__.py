"""The command `python -m harebell.ticker`."""

import os

from harebell.bootstrap.process import run_service
from harebell.runtime.settings import TickerSettings
from harebell.ticker.service import serve

if __name__ == "__main__":
    run_service(TickerSettings, "ticker", serve, environ=os.environ)
