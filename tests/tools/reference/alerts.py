"""The page of the alert rules, from the rule file of Prometheus."""

from pathlib import Path
from typing import Any, Final

import yaml
from tests.tools.reference import markdown
from tests.tools.reference.markdown import prose, table

RULES: Final = Path(__file__).parents[3] / "compose" / "prometheus" / "rules.yml"


def page() -> str:
    """Return the page."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    intro = (
        "You find these rules in `compose/prometheus/rules.yml`.\n"
        "Why they alert, and what you do then, is on the page [alerts](../operations/alerts.md)."
    )
    summary = table(
        ("alert", "severity", "lasts for", "summary"),
        [
            (
                f"[{rule['alert']}](#{rule['alert'].lower()})",
                rule["labels"]["severity"],
                str(rule.get("for", "")),
                prose(rule["annotations"]["summary"]),
            )
            for rule in rules
        ],
    )
    return markdown.page("Alert rules", intro, summary, *map(_section, rules))


def _section(rule: dict[str, Any]) -> str:
    return f"## {rule['alert']}\n\n```promql\n{rule['expr'].strip()}\n```"
