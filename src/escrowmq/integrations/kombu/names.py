"""What kombu's queues and exchanges are called at a broker."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_SIZE_MAX: Final = 60
"""Of kombu's part: topics may have 127 characters, and groups are longer by some words."""

_DIGEST_SIZE: Final = 8


def clean(name: str) -> str:
    """A name that topics and groups can have. Names that differ stay different."""
    found = _OTHERS.sub("_", name)[:_SIZE_MAX]
    if found == name:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_SIZE]
    return f"{found}-{digest}"


def topic_of_queue(prefix: str, queue: str) -> str:
    """Where a queue's messages are."""
    return f"{prefix}-{clean(queue)}"


def group_of_queue(prefix: str, queue: str) -> str:
    """Who reads them."""
    return f"{topic_of_queue(prefix, queue)}-workers"


def topic_of_exchange(prefix: str, exchange: str) -> str:
    """Where an exchange's messages are for queues that live as long as a connection."""
    return f"{prefix}-exchange-{clean(exchange)}"
