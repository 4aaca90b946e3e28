"""Names of topics and groups for kombu's queues and exchanges."""

from __future__ import annotations

import hashlib
import re
from typing import Final

_OTHERS: Final = re.compile(r"[^A-Za-z0-9_-]")
_SIZE_MAX: Final = 60
"""Limit of the length of kombu's part: topics may have 127 characters, and groups have a suffix."""

_DIGEST_SIZE: Final = 8

_OF_ONE_CONNECTION: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\.pidbox$", re.IGNORECASE
)
"""Matches the names that kombu gives to queues of one connection: names with a UUID (`Broadcast`, a
receiver of events, replies), and a worker's mailbox."""


def clean_name(name: str) -> str:
    """Return a valid name for topics and groups. Different names stay different."""
    found = _OTHERS.sub("_", name)[:_SIZE_MAX]
    if found == name:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_SIZE]
    return f"{found}-{digest}"


def is_of_one_connection(queue: str, *, exclusive: bool, auto_delete: bool) -> bool:
    """Whether a queue exists only as long as the connection that declares it. A queue that is
    deleted after its last consumer does not count: it may have several consumers, which share its
    messages."""
    return exclusive or (auto_delete and _OF_ONE_CONNECTION.search(queue) is not None)


def queue_topic(prefix: str, queue: str) -> str:
    """Return the topic for messages of a queue."""
    return f"{prefix}-{clean_name(queue)}"


def queue_group(prefix: str, queue: str) -> str:
    """Return the consumer group of a queue."""
    return f"{queue_topic(prefix, queue)}-workers"


def exchange_topic(prefix: str, exchange: str) -> str:
    """Return the topic of an exchange, for queues that live as long as a connection."""
    return f"{prefix}-exchange-{clean_name(exchange)}"
