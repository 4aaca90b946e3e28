"""A consumer that pulls, holds the broker to what it delivered before, and commits offsets."""

from __future__ import annotations

from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.record import decode_records
from tests.sim.checker import Checker
from tests.sim.client import SimClient
from tests.sim.network import Address, SimNetwork
from tests.sim.stage import Stage, Violation

_HOLD_MS = 30_000
_COMMIT_MS = 5_000
_PULL_COUNT = 8
_SUSPEND, _SUBSCRIPTION = 2, 4

Queue = tuple[str, int]


class SimConsumer(SimClient):
    """The one member of a consumer group; it reads every queue."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        group: str,
        host: Address,
        queues: list[Queue],
        checker: Checker,
    ) -> None:
        super().__init__(stage, network, broker, name=f"{group}@sim", host=host)
        self.group = group
        self._queues = list(queues)
        self._checker = checker
        self._next: dict[Queue, int] = {}
        self._committed: dict[Queue, int] = {}

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        topics = dict.fromkeys(topic for topic, _ in self._queues)
        consumer = {
            "groupName": self.group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {"topic": topic, "subString": "*", "subVersion": 1} for topic in topics
            ],
        }
        return {"producerDataSet": [], "consumerDataSet": [consumer]}

    def add_queue(self, queue: Queue) -> None:
        """The topic has grown."""
        self._queues.append(queue)
        if self.is_connected:
            self._find_start(queue)

    def crash(self) -> None:
        """See SimClient: what was read and not committed is read again."""
        super().crash()
        self._next.clear()
        self._committed.clear()

    def on_connected(self) -> None:
        """See SimClient."""
        for queue in self._queues:
            if queue in self._next:
                self._pull(queue)
            else:
                self._find_start(queue)
        link = self.link

        def commit() -> None:
            if link is self.link:
                self._commit()
                self.after(_COMMIT_MS, commit)

        self.after(_COMMIT_MS, commit)

    def _find_start(self, queue: Queue) -> None:
        def heard(reply: Command | None) -> None:
            if reply is not None and reply.code == Response.SUCCESS:
                self._next[queue] = self._committed[queue] = int((reply.ext or {})["offset"])
                self._pull(queue)
            elif reply is not None and reply.code == Response.QUERY_NOT_FOUND:
                self._next[queue] = self._committed[queue] = 0
                self._pull(queue)
            elif self.is_connected:
                self.after(1_000, partial(self._find_start, queue))

        topic, queue_id = queue
        ext = {"consumerGroup": self.group, "topic": topic, "queueId": str(queue_id)}
        self.call(Request.QUERY_CONSUMER_OFFSET, ext, heard)

    def _commit(self) -> None:
        for queue, offset in self._next.items():
            if self._committed[queue] != offset:
                self._committed[queue] = offset
                ext = {
                    "consumerGroup": self.group,
                    "topic": queue[0],
                    "queueId": str(queue[1]),
                    "commitOffset": str(offset),
                }
                self.cast(Request.UPDATE_CONSUMER_OFFSET, ext)

    def _pull(self, queue: Queue) -> None:
        topic, queue_id = queue
        offset = self._next[queue]
        ext = {
            "consumerGroup": self.group,
            "topic": topic,
            "queueId": str(queue_id),
            "queueOffset": str(offset),
            "maxMsgNums": str(_PULL_COUNT),
            "sysFlag": str(_SUSPEND | _SUBSCRIPTION),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(_HOLD_MS),
            "subscription": "*",
            "subVersion": "1",
            "expressionType": "TAG",
        }
        link = self.link

        def heard(reply: Command | None) -> None:
            if link is not self.link or queue not in self._next:
                return
            delay_ms = 0
            if reply is None:
                delay_ms = 100
            elif reply.code == Response.SUCCESS:
                self._take(queue, offset, reply)
            elif reply.code == Response.PULL_OFFSET_MOVED:
                self._moved(queue, int((reply.ext or {})["nextBeginOffset"]))
            elif reply.code not in (Response.PULL_NOT_FOUND, Response.PULL_RETRY_IMMEDIATELY):
                delay_ms = 3_000  # the topic is not there yet
            self.after(delay_ms, partial(self._pull_on, queue, link))

        self.call(Request.PULL_MESSAGE, ext, heard, timeout_ms=_HOLD_MS + 10_000)

    def _pull_on(self, queue: Queue, link: object) -> None:
        if link is self.link and self.is_connected:
            self._pull(queue)

    def _take(self, queue: Queue, offset: int, reply: Command) -> None:
        for message in decode_records(reply.body):
            if message.queue_offset != offset:
                raise Violation(f"{queue}: offset {message.queue_offset} came, not {offset}")
            self._checker.consumed(self.group, message)
            self.stage.done["messages consumed"] += 1
            offset += 1
        next_offset = int((reply.ext or {})["nextBeginOffset"])
        if next_offset != offset:
            raise Violation(f"{queue}: read up to {offset}, told to go on at {next_offset}")
        self._next[queue] = offset

    def _moved(self, queue: Queue, offset: int) -> None:
        """The queue has no such offset: right after a loss, wrong at any other time."""
        self.stage.note("%s: %s moved from %d to %d", self.name, queue, self._next[queue], offset)
        self._checker.moved(queue, self._next[queue])
        self._next[queue] = offset
