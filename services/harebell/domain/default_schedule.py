"""The default `when` of schedules, for all tenants or per tenant."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from harebell.contract.errors import Rejected
from harebell.contract.json_codec import decode
from harebell.contract.message import to_invalid_input
from harebell.contract.types import EARLIEST
from harebell.contract.when import Every, When
from harebell.domain.validation import check_when

EVERY_FIVE_MINUTES: Final = {"every": "5m", "phase": "spread"}

_WHEN: Final[TypeAdapter[When]] = TypeAdapter(When)


@dataclass(frozen=True, slots=True)
class DefaultWhen:
    """The `when` of schedules that a user puts without one.

    An interval without `start` and `phase` spreads its phases.
    All schedules of an import would otherwise run at the same instants.
    """

    default: When = field(default_factory=lambda: _WHEN.validate_python(EVERY_FIVE_MINUTES))
    by_tenant: Mapping[str, When] = field(default_factory=dict)

    def for_tenant(self, tenant: str) -> When:
        return self.by_tenant.get(tenant, self.default)

    @classmethod
    def parse(cls, text: object) -> "DefaultWhen":
        """Parse JSON: one `when` for all tenants, or an object with a `when` per tenant.

        Raise `ValueError`.
        """
        if isinstance(text, cls):
            return text
        try:
            return cls._parse_json(decode(str(text).encode()))
        except Rejected as error:
            prefix = f"{error.field}: " if error.field else ""
            raise ValueError(prefix + error.reason) from None

    @classmethod
    def _parse_json(cls, value: Any) -> "DefaultWhen":  # noqa: ANN401  # decoded JSON
        if isinstance(value, dict) and all(isinstance(each, dict) for each in value.values()):
            return cls(by_tenant={tenant: _when(each) for tenant, each in value.items()})
        return cls(default=_when(value))


def _when(value: object) -> When:
    try:
        when = _WHEN.validate_python(value)
    except ValidationError as error:
        raise to_invalid_input(error.errors(include_url=False)[0]) from None
    # Intake rejects a past time when a schedule uses the default.
    check_when(when, None, now=EARLIEST)
    return _with_spread_phase(when) if isinstance(when, Every) else when


def _with_spread_phase(rule: Every) -> Every:
    is_stated = bool({"start", "phase"} & rule.model_fields_set)
    can_spread = not is_stated and rule.from_ == "schedule"
    return rule.model_copy(update={"phase": "spread"}) if can_spread else rule
