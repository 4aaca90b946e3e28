"""A list of messages is cut into batches that a broker takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.client.core.message import Message

_ENTRY_SIZE: Final = 256
"""Bytes of an entry of a batch beside its body and the user's texts; plenty. Those of messages that
linger are encoded by then, and are measured (client/lingering)."""


def batches_of(
    messages: Sequence[Message], indexes: Sequence[int], *, size_max: int
) -> list[list[int]]:
    """Indexes of messages that fit into one batch together, in their order."""
    batches: list[list[int]] = []
    room = 0
    for index in indexes:
        message = messages[index]
        texts = [message.tag, message.order_key, *message.key_list]
        texts += [*message.properties, *message.properties.values()]
        size = len(message.body) + _ENTRY_SIZE + 4 * sum(map(len, texts))
        if size > room or not batches:
            batches.append([])
            room = size_max
        room -= size
        batches[-1].append(index)
    return batches
