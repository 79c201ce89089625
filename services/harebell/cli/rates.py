"""Rates as they are typed: `5/s`, `100/m`, `2000/h`, or a number, which is a second's."""

from typing import Final

from harebell.contract.errors import InvalidInput

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600}


def per_second(text: str | None) -> float | None:
    """Raises `Malformed`; whether it is in bounds is the contract's to say."""
    if text is None:
        return None
    number, _, unit = text.partition("/")
    try:
        return float(number) / _SECONDS[unit or "s"]
    except (ValueError, KeyError):
        raise InvalidInput(f"{text!r} is not like 5/s or 100/m", field="rate") from None
