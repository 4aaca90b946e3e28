"""Remembers which of the timer's messages are recalled."""

from __future__ import annotations

import hashlib

from escrowmq.base.fixed_limits import TIMER_RECALLS_MAX
from escrowmq.base.message import Property, StoredMessage
from escrowmq.delivery.timer_records import recall_key


class PendingRecalls:
    """The recalls that are pending: key and slot of the recalled message. The key alone does not
    suffice, because a recall may name another message's key."""

    def __init__(self) -> None:
        self._recalls: set[bytes] = set()
        """Their digests: a key may have some 700 characters."""

    def __len__(self) -> int:
        return len(self._recalls)

    def add(self, key: str, slot: str) -> None:
        """Drop the message with this key in this slot when it is due."""
        if len(self._recalls) < TIMER_RECALLS_MAX:
            self._recalls.add(_digest(key, slot))

    def apply_to(self, source: StoredMessage) -> bool:
        """Return whether a due message is recalled, or is itself a recall, which is forgotten.
        Neither is delivered."""
        properties = source.properties
        recall, slot = properties.get(Property.TIMER_DEL_UNIQKEY), properties[Property.TIMER_OUT_MS]
        if recall is not None:
            self._recalls.discard(_digest(recall, slot))
            return True
        return bool(self._recalls) and _digest(recall_key(source), slot) in self._recalls


def _digest(key: str, slot: str) -> bytes:
    return hashlib.sha256(f"{slot} {key}".encode("utf-8", "surrogatepass")).digest()[:16]
