"""The choice of a queue for a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.base.ports import RandomSource
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_retry import STORED_CODES
from escrowmq.codec.hashes import java_hash

_LATENCIES: Final = (
    (15_000, 30_000),
    (5_000, 10_000),
    (3_000, 6_000),
    (1_800, 5_000),
    (550, 2_000),
)
"""Pairs of times in ms: a broker whose answer took at least the first is avoided for the second
(RocketMQ's MQFaultStrategy)."""

_FAILED_MS: Final = 10_000
"""A failed send is treated like an answer that took this many milliseconds."""

_START_MAX: Final = 1 << 20


class BrokerFaults:
    """The brokers that were slow or failed, and until when each is avoided."""

    def __init__(self) -> None:
        self._until_ms: dict[str, float] = {}

    def record_failure(self, broker_name: str, now_ms: float) -> None:
        """Avoid a broker that was unreachable or did not answer."""
        self._avoid_for_latency(broker_name, _FAILED_MS, now_ms)

    def record_answer(self, broker_name: str, code: int, *, took_ms: float, now_ms: float) -> None:
        """Record how long a broker took to answer a send; if it did not store the message, treat it
        as failed."""
        self._avoid_for_latency(
            broker_name, took_ms if code in STORED_CODES else _FAILED_MS, now_ms
        )

    def _avoid_for_latency(self, broker_name: str, latency_ms: float, now_ms: float) -> None:
        for bound_ms, pause_ms in _LATENCIES:
            if latency_ms >= bound_ms:
                self._until_ms[broker_name] = now_ms + pause_ms
                return
        self._until_ms.pop(broker_name, None)

    def is_avoided(self, broker_name: str, now_ms: float) -> bool:
        """Whether a broker should be avoided now."""
        until_ms = self._until_ms.get(broker_name)
        return until_ms is not None and now_ms < until_ms


class QueueChooser:
    """Chooses the queues of each topic in turn, from a random start. With `faults`, brokers that
    were slow lately are skipped as long as there are others."""

    def __init__(self, chance: RandomSource, faults: BrokerFaults | None = None) -> None:
        self._chance = chance
        self._faults = faults
        self._next: dict[str, int] = {}

    def choose(
        self, queues: Sequence[MessageQueue], *, avoid: str = "", now_ms: float = 0
    ) -> MessageQueue:
        """Return the next queue; if possible, one on another broker than `avoid`."""
        assert queues, "a route without queues is refused before"
        topic = queues[0].topic
        index = self._next.get(topic)
        if index is None:
            index = self._chance.randrange(_START_MAX)
        count = len(queues)
        chosen = queues[index % count]
        if avoid or self._faults is not None:
            fallback = chosen
            for step in range(count):
                candidate = queues[(index + step) % count]
                if candidate.broker_name == avoid:
                    continue
                if fallback.broker_name == avoid:
                    fallback = candidate
                if self._faults is None or not self._faults.is_avoided(
                    candidate.broker_name, now_ms
                ):
                    chosen, index = candidate, index + step
                    break
            else:
                chosen = fallback
        self._next[topic] = index + 1
        return chosen

    def undo_choice(self, queue: MessageQueue) -> None:
        """Choose the same queue again next time, because nothing was sent to it. Otherwise a broker
        without a connection could be skipped by all callers that do not wait for one, and never get
        one."""
        self._next[queue.topic] -= 1


def queue_of_key(queues: Sequence[MessageQueue], key: str) -> MessageQueue:
    """Return the queue that every RocketMQ client chooses for an order key
    (SelectMessageQueueByHash)."""
    return queues[abs(java_hash(key)) % len(queues)]
