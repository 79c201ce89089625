"""`harebell import celery`: the beat entries of an application as manifests.

The Python interpreter of the application imports it, as `celery beat` does. The command needs no
broker.
"""

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import typer

from harebell.cli.framework.command import command
from harebell.cli.framework.exit_codes import ExitCode
from harebell.cli.framework.session import Session
from harebell.cli.imports import celery_probe
from harebell.cli.imports.celery_entries import BeatDocument, convert_beat
from harebell.cli.imports.conversion import MAX_SOURCE_SIZE, print_conversion
from harebell.contract.errors import InvalidInput
from harebell.contract.json_codec import decode
from harebell.contract.message import parse

app = typer.Typer()

PROBE_TIMEOUT: Final = 120.0  # seconds until the application is imported
MAX_ERROR: Final = 1000  # characters of the line with the error


@dataclass(frozen=True, slots=True, kw_only=True)
class CeleryImportOptions:
    """The options of `import celery`."""

    application: Annotated[
        str,
        typer.Argument(
            metavar="APP", help="Import this application, as `module:name` or as `module`."
        ),
    ]
    python: Annotated[
        Path | None,
        typer.Option(
            "--python",
            metavar="FILE",
            help="Import with this interpreter, which has Celery (default: that of Harebell).",
        ),
    ] = None
    key_prefix: Annotated[
        str,
        typer.Option("--key-prefix", metavar="TEXT", help="Begin each key with this text."),
    ] = ""


@command(app, "celery", global_options=("output",))
def import_celery(session: Session, options: CeleryImportOptions) -> ExitCode:
    """Write the entries of Celery beat in the form that `apply` reads (YAML, or JSON)."""
    document = parse(BeatDocument, decode(_probe(options)))
    conversion = convert_beat(document, key_prefix=options.key_prefix, now=session.now())
    return print_conversion(session, conversion)


def _probe(options: CeleryImportOptions) -> bytes:
    """Return the JSON that the probe wrote. Raise `InvalidInput` if the probe failed."""
    python = options.python or Path(sys.executable)
    program = [str(python), str(celery_probe.__file__), options.application]
    try:
        found = subprocess.run(  # noqa: S603  # the interpreter that the user names
            program,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            timeout=PROBE_TIMEOUT,
        )
    except OSError as error:
        reason = f"The interpreter {python} cannot be started: {error.strerror}."
        raise InvalidInput(reason, code="no_interpreter") from None
    except subprocess.TimeoutExpired:
        reason = f"The application must be imported within {PROBE_TIMEOUT:g} s."
        raise InvalidInput(reason, code="timeout") from None
    except subprocess.CalledProcessError as error:
        reason = f"The application cannot be imported: {_last_error(error.stderr)}"
        raise InvalidInput(reason, code="import_failed") from None
    if len(found.stdout) > MAX_SOURCE_SIZE:
        reason = f"The entries must have at most {MAX_SOURCE_SIZE} bytes of JSON."
        raise InvalidInput(reason, code="too_large")
    return found.stdout


def _last_error(output: bytes) -> str:
    """Return the last line of a traceback that is not a part of a message of several lines."""
    lines = output.decode(errors="replace").splitlines()
    return next((each[:MAX_ERROR] for each in reversed(lines) if each[:1].strip()), "no output")
