"""An operator who deletes a topic and makes it again and again, and its messages: what was
acknowledged of the last topic is there, nothing of those before it, and no consumer skips any."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

from escrowmq.base.codes import Request, Response
from escrowmq.store.store import Store
from tests.group.worlds.clients import Client, Journal
from tests.harness.group import GroupWorld, MemberHost

if TYPE_CHECKING:
    from escrowmq.base.command import Command

TOPIC: Final = "again"
_READERS: Final = "RG"
_QUEUES_MAX: Final = 4
_MADE: Final = {
    "topic": TOPIC, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG",
    "order": "false",
}  # fmt: skip


class Remaker(Client):
    """One topic at a time: made, sent to, read of, deleted."""

    def __init__(self, world: GroupWorld, name: str, chance: random.Random, seen: Journal) -> None:
        super().__init__(world, name, chance, seen)
        self.life = 0
        """The number of the topic."""
        self.is_made = self.is_doomed = False
        """Whether it is acknowledged that it was made; whether its deletion was asked for."""
        self.acknowledged: list[bytes] = []
        self.read: dict[int, int] = {}
        """The offsets that were committed, acknowledged or not, by queue."""
        self._queues_count = self._left_count = 0

    def act(self) -> None:
        if self._waiting or self.chance.random() < 0.5:
            return
        if self.is_doomed:
            self._delete()
        elif not self.is_made:
            self._make()
        elif self._left_count:
            self._left_count -= 1
            self._send()
        elif self.chance.random() < 0.1:
            self.is_doomed = True

    def _make(self) -> None:
        count = self._queues_count = self.chance.randint(1, _QUEUES_MAX)

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                self.is_made, self._left_count = True, self.chance.randint(1, 6)

        wish = _MADE | {"readQueueNums": str(count), "writeQueueNums": str(count)}
        self.ask(lambda c: c.begin(Request.UPDATE_AND_CREATE_TOPIC, wish), answered)

    def _send(self) -> None:
        queue, number = self.chance.randrange(self._queues_count), len(self.acknowledged)
        body = b"%d/%d/%d" % (self.life, number, self._left_count)

        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                self.acknowledged.append(body)
                if self.chance.random() < 0.5:
                    self._commit(queue, int((reply.ext or {})["queueOffset"]) + 1)

        no_default = {"c": "nothing"}  # a late one may not make the topic
        self.ask(lambda c: c.begin_send(TOPIC, body, queue_id=queue, fields=no_default), answered)

    def _commit(self, queue: int, offset: int) -> None:
        self.read[queue] = max(offset, self.read.get(queue, 0))
        ext = {
            "consumerGroup": _READERS, "topic": TOPIC, "queueId": str(queue),
            "commitOffset": str(offset),
        }  # fmt: skip
        self.ask(lambda c: c.begin(Request.UPDATE_CONSUMER_OFFSET, ext), lambda _: None)

    def _delete(self) -> None:
        def answered(reply: Command) -> None:
            if reply.code == Response.SUCCESS:
                self.life += 1
                self.is_made = self.is_doomed = False
                self.acknowledged, self.read = [], {}

        named = {"topic": TOPIC}
        self.ask(lambda c: c.begin(Request.DELETE_TOPIC_IN_BROKER, named), answered)

    # -- in the end --------------------------------------------------------------------------

    def faults(self, serving: MemberHost) -> list[str]:
        """What is wrong at the master, once all is quiet."""
        assert serving.broker is not None
        broker = serving.broker.core.broker
        found = [
            body for queue_id in range(_QUEUES_MAX) for body in _bodies(broker.store, queue_id)
        ]
        faults = [
            f"{body!r} is visible, and the topic is number {self.life}"
            for body in found
            if int(body.split(b"/")[0]) != self.life
        ]
        if self.is_made and not self.is_doomed:
            faults += [f"{body!r} is lost" for body in {*self.acknowledged} - {*found}]
            faults += [f"{body!r} is there twice" for body in {*found} if found.count(body) > 1]
        for queue_id, offset in broker.offsets.offsets_of(_READERS, TOPIC).items():
            if not self.is_doomed and offset > self.read.get(queue_id, 0):
                faults.append(f"queue {queue_id} of {self.life} is read from {offset} on")
        return faults


def _bodies(store: Store, queue_id: int) -> list[bytes]:
    low, end = store.bounds(TOPIC, queue_id)
    messages = [store.read(at) for at, _, _ in store.read_units(TOPIC, queue_id, low, end - low)]
    return [b"nothing can be read" if one is None else one.body for one in messages]
