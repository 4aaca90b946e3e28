"""Splits a list of messages into batches that a broker accepts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.client.core.message import Message

_ENTRY_SIZE: Final = 256
"""Upper bound for the bytes of an entry in a batch, without its body and the user's texts.
Lingering messages are already encoded and are measured exactly (client/lingering)."""


def split_into_batches(
    messages: Sequence[Message], indexes: Sequence[int], *, size_max: int
) -> list[list[int]]:
    """Return batches of indexes, in order; the messages of each batch fit into one request."""
    batches: list[list[int]] = []
    room = 0
    for index in indexes:
        message = messages[index]
        properties = message.properties or {}
        texts = [message.tag or "", message.order_key or "", *message.key_list]
        texts += [*properties, *properties.values()]
        size = len(message.body) + _ENTRY_SIZE + 4 * sum(map(len, texts))
        if size > room:
            batches.append([])
            room = size_max
        room -= size
        batches[-1].append(index)
    return batches
