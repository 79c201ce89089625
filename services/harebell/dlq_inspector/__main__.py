"""The entry point `python -m harebell.dlq_inspector`."""

import os

from harebell.bootstrap.process import run_service
from harebell.dlq_inspector.service import ROLE, serve
from harebell.runtime.settings import DlqInspectorSettings

if __name__ == "__main__":
    run_service(DlqInspectorSettings, ROLE, serve, environ=os.environ)
