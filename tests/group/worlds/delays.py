"""A sender of delayed messages: each comes once, and not before its time."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Response
from escrowmq.base.message import Property, StoredMessage
from escrowmq.codec.properties import encode_properties
from tests.group.worlds.clients import Client, Journal
from tests.harness.group import GroupWorld, MemberHost

if TYPE_CHECKING:
    from escrowmq.base.command import Command

TOPIC: Final = "later"
_SPANS_MS: Final = (1_000, 5_000, 10_000)
"""Of the first delay levels."""

_LATEST_MS: Final = 25_000


class DelayedSender(Client):
    """Sends messages with delay levels and with delivery times."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self._count = 0
        self._due_ms: dict[str, int] = {}
        self.has_skew = False
        """Whether clocks differ: then a master may take a span for over, as RocketMQ does."""
        self.is_hasty = False
        """Whether delays are short."""
        self.has_times = True
        """Whether messages with delivery times are sent, too."""
        self._spans_ms: dict[str, int] = {}
        self._acknowledged: set[str] = set()
        self._come: dict[tuple[int, int], StoredMessage] = {}
        """By queue id and offset."""

    def act(self) -> None:
        if len(self._waiting) >= 4 or self.chance.random() < 0.8:
            return
        self._count += 1
        key, now_ms = f"{self.name}-{self._count}", self._host_ms()
        if self.chance.random() < 0.5 or not self.has_times:
            level = 1 if self.is_hasty else self.chance.randint(1, len(_SPANS_MS))
            self._spans_ms[key] = _SPANS_MS[level - 1]
            properties = {Property.DELAY: str(level)}
        else:
            self._due_ms[key] = now_ms + self.chance.randrange(
                1, 1_500 if self.is_hasty else _LATEST_MS
            )
            properties = {Property.TIMER_DELIVER_MS: str(self._due_ms[key])}
        if self.chance.random() < 0.8:
            properties["UNIQ_KEY"] = key

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                self._acknowledged.add(key)

        fields = {"i": encode_properties(properties).decode()}
        self.ask(lambda c: c.begin_send(TOPIC, key.encode(), fields=fields), answered)

    def note(self, serving: MemberHost) -> None:
        """Keep in mind what has come; it may be deleted for its age."""
        self._come |= {
            (message.queue_id, message.queue_offset): message for message in _delivered(serving)
        }

    # -- in the end --------------------------------------------------------------------------

    def missing(self, serving: MemberHost) -> set[str]:
        """Acknowledged messages that have not come."""
        return self._acknowledged - {message.body.decode() for message in self._found(serving)}

    def faults(self, serving: MemberHost) -> list[str]:
        """What is wrong at the master, once all is quiet."""
        found = self._found(serving)
        keys = [message.body.decode() for message in found]
        faults = []
        if self.has_times:  # where a clock is days ahead, others take its levels for due
            faults = [
                f"{key} came {keys.count(key)} times" for key in {*keys} if keys.count(key) > 1
            ]
        for key, message in zip(keys, found, strict=True):
            # The clock of a frozen process is behind: a span begins when the message was stored.
            due_ms = self._due_ms.get(key, 0)
            if not due_ms and not self.has_skew:
                due_ms = message.born_ms + self._spans_ms[key]
            if message.stored_ms < due_ms:
                faults.append(f"{key} came {due_ms - message.stored_ms} ms too early")
        return faults + [f"{key} never came" for key in sorted(self.missing(serving))]

    def _found(self, serving: MemberHost) -> list[StoredMessage]:
        self.note(serving)
        return [*self._come.values()]


def _delivered(serving: MemberHost) -> list[StoredMessage]:
    assert serving.broker is not None
    store = serving.broker.core.broker.store
    found = []
    for queue_id in store.queues_of(TOPIC):
        low, end = store.bounds(TOPIC, queue_id)
        for at, _, _ in store.read_units(TOPIC, queue_id, low, end - low):
            message = store.read(at)
            assert message is not None
            found.append(message)
    return found
