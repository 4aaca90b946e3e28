"""Which characters names of topics and groups may have, for brokers, clients and fronts alike. How
long they may be: base/fixed_limits."""

from __future__ import annotations

import re
from typing import Final

NAME_LETTERS: Final = "^[%|a-zA-Z0-9_-]+$"
"""As RocketMQ tells its users (TopicValidator)."""

_NAME: Final = re.compile(NAME_LETTERS.strip("^$"))


def has_name_letters(name: str) -> bool:
    """Whether a topic's or a group's name has letters, and no others than are allowed."""
    return _NAME.fullmatch(name) is not None
