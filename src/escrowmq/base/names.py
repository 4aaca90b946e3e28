"""Characters allowed in names of topics and groups, for brokers, clients and fronts. Lengths are in
base/fixed_limits."""

from __future__ import annotations

import re
from typing import Final

NAME_LETTERS: Final = "^[%|a-zA-Z0-9_-]+$"
"""The allowed characters, in the form of RocketMQ's error text (TopicValidator)."""

_NAME: Final = re.compile(NAME_LETTERS.strip("^$"))


def has_name_letters(name: str) -> bool:
    """Whether a name is not empty and has only allowed characters."""
    return _NAME.fullmatch(name) is not None
