"""`python -m harebell.dlq_inspector`: the dead-letter desk."""

import os

from harebell.dlq_inspector.service import ROLE, serve
from harebell.kernel.lifecycle import start
from harebell.kernel.settings import InspectorSettings

if __name__ == "__main__":
    start(InspectorSettings, ROLE, serve, os.environ)
