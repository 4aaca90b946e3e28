"""Assigns queues to clients, as RocketMQ's brokers do (QueryAssignmentProcessor).

messageRequestMode.json says which groups pop a topic instead of pulling it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from escrowmq.base.message import Topic
from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId

PATH: Final = "config/messageRequestMode.json"
PULL: Final = "PULL"
POP: Final = "POP"
ALL_QUEUES: Final = -1
_SHARE_ALL: Final = -1


class RequestMode(msgspec.Struct, rename="camel", kw_only=True):
    """How a group reads a topic: by pulls or pops. The fields are in RocketMQ's order."""

    consumer_group: str = ""
    mode: str = PULL
    pop_share_queue_num: int = 0
    topic: str = ""


class RequestModes:
    """How groups read topics, as set by operators."""

    def __init__(self, default: str) -> None:
        self._default = default
        self._modes: dict[str, dict[str, RequestMode]] = {}

    def load(self, data: bytes | None) -> None:
        """Load messageRequestMode.json. Raises if it cannot be parsed."""
        raw: dict[str, Any] = fastjson.decode_fastjson(data) if data else {}
        self._modes = msgspec.convert(
            raw.get("messageRequestModeMap") or {}, dict[str, dict[str, RequestMode]], strict=False
        )

    def encode(self) -> bytes:
        """Return all modes as one line of JSON."""
        return _encode_modes(self._modes)

    def encode_with(self, mode: RequestMode) -> bytes:
        """Return the new content of messageRequestMode.json, with one more mode."""
        modes = {**self._modes, mode.topic: {**self._modes.get(mode.topic, {})}}
        modes[mode.topic][mode.consumer_group] = mode
        return msgspec.json.format(_encode_modes(modes), indent=2)

    def put(self, mode: RequestMode) -> None:
        """Set a mode."""
        self._modes.setdefault(mode.topic, {})[mode.consumer_group] = mode

    def get(self, topic: str, group: str) -> RequestMode:
        """Return how a group reads a topic: as set by an operator, or by default."""
        found = self._modes.get(topic, {}).get(group)
        if found is not None:
            return found
        mode = PULL if topic.startswith(Topic.RETRY_PREFIX) else self._default
        share = _SHARE_ALL if mode == POP else 0
        return RequestMode(consumer_group=group, mode=mode, pop_share_queue_num=share, topic=topic)


def _encode_modes(modes: dict[str, dict[str, RequestMode]]) -> bytes:
    return fastjson.encode({"messageRequestModeMap": modes})


Strategy = Callable[[str, list[QueueId], list[str]], list[QueueId]]


def allocate_evenly(client_id: str, queues: list[QueueId], client_ids: list[str]) -> list[QueueId]:
    """Assign consecutive queues to each client; the first clients get one more (strategy AVG)."""
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    each, rest = divmod(len(queues), len(client_ids))
    start = index * each + min(index, rest)
    return queues[start : start + each + (index < rest)]


def allocate_in_turn(client_id: str, queues: list[QueueId], client_ids: list[str]) -> list[QueueId]:
    """Assign queues round robin (strategy AVG_BY_CIRCLE)."""
    if client_id not in client_ids:
        return []
    return queues[client_ids.index(client_id) :: len(client_ids)]


STRATEGIES: Final[dict[str, Strategy]] = {
    "AVG": allocate_evenly,
    "AVG_BY_CIRCLE": allocate_in_turn,
}


def assign_queues(
    mode: RequestMode, strategy: str, client_id: str, queues: list[QueueId], client_ids: list[str]
) -> list[QueueId] | None:
    """Return the queues of a client; None if they cannot be determined, so that it keeps its
    present ones."""
    allocate = STRATEGIES.get(strategy)
    if allocate is None or not client_id or not queues or not client_ids:
        return None
    queues = sorted(queues, key=lambda queue: (queue.topic, queue.broker_name, queue.queue_id))
    client_ids = sorted(client_ids)
    if mode.mode != POP:
        return allocate(client_id, queues, client_ids)
    # Several members may pop one queue: 0, or nearly as many as there are, means all of them.
    share = mode.pop_share_queue_num
    if share <= 0 or share >= len(client_ids) - 1:
        names = dict.fromkeys((queue.broker_name, queue.topic) for queue in queues)
        return [QueueId(name, ALL_QUEUES, topic) for name, topic in names]
    if client_id not in client_ids:
        return []
    index = client_ids.index(client_id)
    if len(client_ids) > len(queues):  # else some would have nothing to do
        return [queues[index % len(queues)]]
    # Its own queues, and those of the next members in the circle.
    found: dict[QueueId, None] = {}
    for step in range(share + 1):
        helped = client_ids[(index + step) % len(client_ids)]
        found.update(dict.fromkeys(allocate(helped, queues, client_ids)))
    return list(found)
