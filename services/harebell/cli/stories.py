"""A dead letter as a person reads it: what it was to call, each try, and why it failed."""

import base64
from collections.abc import Mapping
from typing import Any, Final

MAX_BODY: Final = 2_000  # characters of a message's body
TOLD_APART: Final = ("story", "body", "headers")
OF_STORY: Final = ("target", "version", "type", "routing_key", "size", "headers")


def render_dead_letter(letter: Mapping[str, Any]) -> dict[str, Any]:
    """`attempts` are the tries themselves, of a run; `body` is text, of a message."""
    story = letter["story"]
    told = {name: value for name, value in letter.items() if name not in TOLD_APART}
    told |= {name: story[name] for name in OF_STORY if name in story}
    if "attempts" in story:
        told["attempts"] = story["attempts"]
    if letter.get("body") is not None:
        text = base64.b64decode(letter["body"]).decode(errors="backslashreplace")
        told["body"] = text[:MAX_BODY]
    return told
