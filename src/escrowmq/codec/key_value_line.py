"""Formats lines of the log `escrowmq.audit` (docs/security.md).

`event=...`, then further `key=value`. A value with characters other than letters, digits and
`._:/%*|-` is a JSON string in quotes, so that no one can forge a line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

VALUE_SIZE_MAX: Final = 512
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/%*|-]+")


def format_audit_line(event: str, fields: Mapping[str, object]) -> str:
    """Return the line for an event with its fields."""
    text = " ".join(f"{name}={quote_if_needed(value)}" for name, value in fields.items())
    return f"event={event} {text}"


def quote_if_needed(value: object) -> str:
    """Return a value as it is written in a line, in quotes if necessary."""
    text = str(value)
    if len(text) > VALUE_SIZE_MAX:
        text = text[:VALUE_SIZE_MAX] + "..."
    return text if _PLAIN.fullmatch(text) else json.dumps(text)
