"""`python -m harebell.intake`."""

import os

from harebell.intake.service import serve
from harebell.kernel.lifecycle import run_service
from harebell.kernel.settings import IntakeSettings

if __name__ == "__main__":
    run_service(IntakeSettings, "intake", serve, os.environ)
