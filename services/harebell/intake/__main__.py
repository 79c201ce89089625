"""`python -m harebell.intake`: run intake until SIGTERM."""

import os

from harebell.bootstrap.process import run_service
from harebell.intake.service import serve
from harebell.runtime.settings import IntakeSettings

if __name__ == "__main__":
    run_service(IntakeSettings, "intake", serve, environ=os.environ)
