"""Publishing as any service could: Debian's `amqp-publish`, by the very line that is shown."""

import os
import shlex
import shutil
import subprocess

from harebell.contract.names import COMMANDS, JSON, message_key
from harebell.dev.demo.errors import DemoFailed

TENANT = "default"
PROGRAM = "amqp-publish"
PUBLISH_S = 15.0  # what one publish may take
URL = "HAREBELL_AMQP_URL"


def require() -> None:
    """Raises `DemoFailed` when the program is not on this machine."""
    if shutil.which(PROGRAM) is None:
        raise DemoFailed(f"{PROGRAM} is not installed: apt-get install amqp-tools")


def command_line(verb: str, body: str) -> str:
    """For a shell that has the broker's URL in its environment."""
    return (
        f'{PROGRAM} --url="${URL}" -e {COMMANDS} -r {message_key(TENANT, verb)} -p -C {JSON} \\\n'
        f"  -b {shlex.quote(body)}"
    )


def publish(line: str, *, amqp_url: str) -> None:
    """Run the line as a person would, in a shell that knows nothing else."""
    done = subprocess.run(  # noqa: S603  # the line is ours, its values are quoted
        ["/bin/sh", "-c", line],
        env={"PATH": os.environ.get("PATH", os.defpath), URL: amqp_url},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PUBLISH_S,
        check=False,
    )
    if done.returncode:
        raise DemoFailed(f"{PROGRAM} failed", done.stderr.strip())
