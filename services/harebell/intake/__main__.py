"""`python -m harebell.intake`."""

import os

from harebell.intake.service import serve
from harebell.kernel.lifecycle import start
from harebell.kernel.settings import IntakeSettings

if __name__ == "__main__":
    start(IntakeSettings, "intake", serve, os.environ)
