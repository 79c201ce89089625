"""A check: its verdict, a sentence and a remedy, found within a bounded time."""

import asyncio
from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from harebell.contract.errors import HarebellError

CHECK_TIMEOUT: Final = 10.0  # seconds for one check, in which a silent server must answer
UNREACHABLE: Final = "Check the URL, the network and the server, and repeat the command."
UNEXPECTED: Final = "Repeat the command, and report the error if it remains."


class DoctorResult(StrEnum):
    """The verdicts of a check. Only a failed check changes the exit code."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check. `remedy` is None if there is nothing to mend."""

    check: str
    result: DoctorResult
    text: str
    remedy: str | None = None


def passed(check: str, text: str) -> Check:
    """Return a check without a fault."""
    return Check(check=check, result=DoctorResult.OK, text=text)


def warned(check: str, text: str, remedy: str) -> Check:
    """Return a check with a fault that stops no run."""
    return Check(check=check, result=DoctorResult.WARNING, text=text, remedy=remedy)


def failed(check: str, text: str, remedy: str) -> Check:
    """Return a check with a fault that may stop, delay or lose runs.

    The text may be the error of a library, which becomes a sentence.
    """
    sentence = text if text.endswith(".") else f"{text}."
    return Check(check=check, result=DoctorResult.FAILED, text=sentence, remedy=remedy)


def skipped(check: str, text: str, remedy: str) -> Check:
    """Return a check that could not be made."""
    return Check(check=check, result=DoctorResult.SKIPPED, text=text, remedy=remedy)


async def run_check(
    check: str, results: Awaitable[Iterable[Check]], *, limit: float = CHECK_TIMEOUT
) -> list[Check]:
    """Return the results, or one failed check after an error or after `limit` seconds.

    No error of one check hides the other checks.
    """
    try:
        async with asyncio.timeout(limit):
            return list(await results)
    except TimeoutError:
        text = f"The check did not end within {limit:g} s."
        return [failed(check, text, UNREACHABLE)]
    except HarebellError as error:
        return [failed(check, error.reason, UNREACHABLE)]
    except Exception as error:  # noqa: BLE001  # the command must report every other check
        text = f"The check ended with {type(error).__name__}: {error}."
        return [failed(check, text, UNEXPECTED)]
