"""`python -m harebell.ticker`."""

import os

from harebell.kernel.lifecycle import start
from harebell.kernel.settings import TickerSettings
from harebell.ticker.service import serve

if __name__ == "__main__":
    start(TickerSettings, "ticker", serve, os.environ)
