"""The result of a conversion: the manifests, and what they do not contain."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from harebell.cli.framework.exit_codes import ExitCode, exit_code_of_many
from harebell.cli.framework.session import Session
from harebell.cli.manifests.export import print_manifests
from harebell.contract.errors import Rejected
from harebell.contract.message import parse
from harebell.contract.schedule import Definition
from harebell.domain.validation import check_when

MAX_SOURCE_SIZE: Final = 16 * 1024 * 1024  # bytes of one source of schedules
MAX_NAME: Final = 256  # characters of a key and of a name


@dataclass(slots=True, kw_only=True)
class Conversion:
    """The manifests of one source, in its order.

    `omitted` has a sentence for each schedule without a manifest. `remarks` has a sentence for each
    part of a source that a manifest does not contain.
    """

    now: datetime
    manifests: list[dict[str, Any]] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, source: str, manifest: Mapping[str, Any]) -> None:
        """Add a manifest if it is valid. `source` names the schedule at the start of a sentence."""
        try:
            definition = parse(Definition, manifest)
            check_when(definition.when, None, now=self.now)
        except Rejected as error:
            self.omit(source, f"the definition is invalid: {error.reason}")
            return
        self.manifests.append(dict(manifest))

    def omit(self, source: str, reason: str) -> None:
        """Record a schedule that has no manifest."""
        self.omitted.append(f"{source} has no manifest: {reason.rstrip('.')}.")

    def remark(self, source: str, text: str) -> None:
        """Record a part that a manifest does not contain."""
        self.remarks.append(f"{source}: {text}")


def print_conversion(session: Session, conversion: Conversion) -> ExitCode:
    """Print the manifests to stdout and everything else to stderr. Return the exit code."""
    print_manifests(session, conversion.manifests)
    for text in (*conversion.omitted, *conversion.remarks):
        session.output.print_message(text)
    return exit_code_of_many(done=len(conversion.manifests), failed=len(conversion.omitted))
