"""`python -m harebell.dlq_inspector`: the dead-letter desk."""

import os

from harebell.dlq_inspector.service import ROLE, serve
from harebell.kernel.lifecycle import run_service
from harebell.kernel.settings import InspectorSettings

if __name__ == "__main__":
    run_service(InspectorSettings, ROLE, serve, os.environ)
