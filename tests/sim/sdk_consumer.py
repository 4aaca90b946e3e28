"""A consumer whose decisions are the SDK's: which queues are its own, what to make of a pull's
answer, and which offset may be kept. Only sockets and clock are of the simulator."""

from __future__ import annotations

import json
import random
from functools import partial

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client.core.allocation import STRATEGIES, allocate
from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.client.core.pulling import PullCursor, PullStep, pull_fields, with_subscription
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import parse_subscription
from escrowmq.codec.record import decode_records
from tests.sim.checker import Checker
from tests.sim.consumer import Queue
from tests.sim.network import Address, SimNetwork
from tests.sim.plan import Plan
from tests.sim.sdk_client import BROKER, SdkClient
from tests.sim.stage import Stage, Violation

GROUP = "packers"
_MEMBERS = 2
_BALANCE_MS = 20_000
_COMMIT_MS = 5_000
_HOLD_MS = 15_000
_PAUSE_MS = 1_000
_PULL_COUNT = 8
_HELD_MAX = 24
_FAILED_SHARE = 0.05
_HANDLING_MS = (0, 5, 500, 3_000)


class Handled:
    """What the members of the group have done with: no offset behind it may be kept."""

    def __init__(self) -> None:
        self._done: dict[MessageQueue, set[int]] = {}
        self._low: dict[MessageQueue, int] = {}

    def add(self, queue: MessageQueue, queue_offset: int) -> None:
        """A handler has returned."""
        self._done.setdefault(queue, set()).add(queue_offset)

    def skip(self, queue: MessageQueue, queue_offset: int) -> None:
        """A broker said that there is nothing before this offset."""
        self._low[queue] = max(queue_offset, self._low.get(queue, 0))

    def check(self, queue: MessageQueue, queue_offset: int) -> None:
        """An offset is about to be kept for the group."""
        done = self._done.get(queue, set())
        low = self._low.get(queue, 0)
        while low < queue_offset:
            if low not in done:
                raise Violation(
                    f"offset {queue_offset} of {queue} is kept, and {low} was never handled"
                )
            low += 1
        self._low[queue] = max(low, self._low.get(queue, 0))


class QueueFetcher:
    """One queue that a member reads."""

    def __init__(self, queue: MessageQueue, next_offset: int) -> None:
        self.queue = queue
        self.shelf: FetchedMessages[ReceivedMessage] = FetchedMessages(next_offset=next_offset)
        self.cursor = PullCursor(self.shelf, wait_ms=_HOLD_MS)
        self.committed = next_offset
        self.is_pulling = False


class SdkConsumer(SdkClient):
    """One of the members of a group that shares its queues."""

    def __init__(
        self,
        stage: Stage,
        network: SimNetwork,
        broker: Address,
        *,
        number: int,
        plan: Plan,
        checker: Checker,
        handled: Handled,
    ) -> None:
        host = (f"10.0.5.{number}", 51_000)
        super().__init__(stage, network, broker, name=f"{GROUP}-{number}@sdk", host=host)
        self._checker = checker
        self._handled = handled
        self._chance = random.Random(plan.seed * 37 + number)
        self._queues = [
            MessageQueue(topic, BROKER, queue_id)
            for topic, _ in plan.topics
            for queue_id in range(plan.queues_count)
        ]
        self._wanted = {
            topic: parse_subscription(topic, version=1, wire_topic=topic)
            for topic, _ in plan.topics
        }
        self._readers: dict[MessageQueue, QueueFetcher] = {}
        self._entering: set[MessageQueue] = set()

    def groups(self) -> dict[str, object]:
        """See SimClient."""
        consumer = {
            "groupName": GROUP,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "unitMode": False,
            "subscriptionDataSet": [
                {"topic": topic, "subString": "*", "subVersion": 1} for topic in self._wanted
            ],
        }
        return {"producerDataSet": [], "consumerDataSet": [consumer]}

    def add_queue(self, queue: Queue) -> None:
        """The topic has grown."""
        self._queues.append(MessageQueue(queue[0], BROKER, queue[1]))

    def crash(self) -> None:
        """See SimClient: what was read and not kept is read again."""
        super().crash()
        self._forget()

    def on_connected(self) -> None:
        """See SimClient."""
        self._forget()
        link = self.link
        self._every(_BALANCE_MS, self._balance, link)
        self._every(_COMMIT_MS, self._commit, link)
        self._balance()

    def on_request(self, request: Command) -> None:
        """See SimClient: members have come or gone."""
        if request.code == Request.NOTIFY_CONSUMER_IDS_CHANGED:
            self._balance()

    def _forget(self) -> None:
        self._readers.clear()
        self._entering.clear()

    def _every(self, span_ms: int, work: object, link: object) -> None:
        def again() -> None:
            if link is self.link and callable(work):
                work()
                self._every(span_ms, work, link)

        self.after(span_ms, again)

    # -- sharing out -----------------------------------------------------------------------------

    def _balance(self) -> None:
        link = self.link

        def heard(reply: Command | None) -> None:
            if link is not self.link or reply is None or reply.code != Response.SUCCESS:
                return
            members = json.loads(reply.body)["consumerIdList"]
            mine: set[MessageQueue] = set()
            for topic in self._wanted:
                queues = [queue for queue in self._queues if queue.topic == topic]
                mine |= {*allocate(STRATEGIES["average"], queues, members=members, me=self.name)}
            self._take_over(mine)

        self.call(Request.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUP}, heard)

    def _take_over(self, mine: set[MessageQueue]) -> None:
        for queue in [queue for queue in self._readers if queue not in mine]:
            self.stage.done["queues that changed hands"] += 1
            self._keep(self._readers.pop(queue))
        for queue in sorted(mine - self._readers.keys() - self._entering):
            self._enter(queue)

    def _enter(self, queue: MessageQueue) -> None:
        self._entering.add(queue)
        link = self.link

        def heard(reply: Command | None) -> None:
            if link is not self.link:
                return
            self._entering.discard(queue)
            if reply is not None and reply.code == Response.SUCCESS:
                start = int((reply.ext or {})["offset"])
            elif reply is not None and reply.code == Response.QUERY_NOT_FOUND:
                start = 0
            else:
                return  # the next round tries again
            reader = self._readers[queue] = QueueFetcher(queue, start)
            self._pull(reader)

        ext = {"consumerGroup": GROUP, "topic": queue.topic, "queueId": str(queue.queue_id)}
        self.call(Request.QUERY_CONSUMER_OFFSET, ext, heard)

    # -- offsets ---------------------------------------------------------------------------------

    def _commit(self) -> None:
        for reader in self._readers.values():
            self._keep(reader)

    def _keep(self, reader: QueueFetcher) -> None:
        offset = reader.shelf.commit_offset
        if offset == reader.committed:
            return
        self._handled.check(reader.queue, offset)
        reader.committed = offset
        self.stage.done["offsets kept by the SDK"] += 1
        ext = {
            "consumerGroup": GROUP,
            "topic": reader.queue.topic,
            "queueId": str(reader.queue.queue_id),
            "commitOffset": str(offset),
        }
        self.cast(Request.UPDATE_CONSUMER_OFFSET, ext)

    # -- reading ---------------------------------------------------------------------------------

    def _is_read(self, reader: QueueFetcher) -> bool:
        return self._readers.get(reader.queue) is reader

    def _pull(self, reader: QueueFetcher) -> None:
        if (
            reader.is_pulling
            or not self._is_read(reader)
            or reader.shelf.unsettled_count >= _HELD_MAX
        ):
            return
        reader.is_pulling = True
        shelf, wanted = reader.shelf, self._wanted[reader.queue.topic]
        commit_offset, asked_ms = shelf.commit_offset, self.stage.clock.now_ms()
        self._handled.check(reader.queue, commit_offset)

        def heard(reply: Command | None) -> None:
            reader.is_pulling = False
            if not self._is_read(reader):
                return
            if reply is None:
                reader.cursor.ask_master_next()
                pause_s = reader.cursor.count_failure()
            else:
                took_ms = self.stage.clock.now_ms() - asked_ms
                pause_s = self._judge(reader, reply, took_ms=took_ms)
            self.after(round(pause_s * 1000), partial(self._pull, reader))

        fields = pull_fields(
            reader.queue, wanted, group=GROUP, queue_offset=shelf.next_offset,
            commit_offset=commit_offset, count_max=_PULL_COUNT, suspend_ms=_HOLD_MS,
        )  # fmt: skip
        fields = with_subscription(fields, wanted)
        self.call(Request.PULL_MESSAGE, fields, heard, timeout_ms=_HOLD_MS + 5_000)

    def _judge(self, reader: QueueFetcher, reply: Command, *, took_ms: int) -> float:
        """How long to wait before the next pull."""
        was_at = reader.shelf.next_offset
        step, next_offset = reader.cursor.apply_reply(reply)
        if step is PullStep.TAKE:
            self._take(reader, reply, next_offset)
        elif step in (PullStep.ADVANCE, PullStep.MOVE) and next_offset != was_at:
            self._checker.moved((reader.queue.topic, reader.queue.queue_id), was_at)
            self._handled.skip(reader.queue, next_offset)
            reader.committed = -1
        if reader.shelf.next_offset != next_offset and step is not PullStep.REST:
            raise Violation(
                f"{reader.queue} goes on at {reader.shelf.next_offset}, not {next_offset}"
            )
        return reader.cursor.pause_s(step, took_ms=took_ms)

    def _take(self, reader: QueueFetcher, reply: Command, next_offset: int) -> None:
        shelf = reader.shelf
        records = {each.queue_offset: each for each in decode_records(reply.body)}
        shelf.add(
            [to_received_message(each, broker_name=BROKER) for each in records.values()],
            next_offset=next_offset,
        )
        losses_count = self._checker.losses_count
        for message in shelf.take(_PULL_COUNT):
            record = records[message.queue_offset]
            handle = partial(self._handle, reader, message, record, shelf.generation, losses_count)
            self.after(self._chance.choice(_HANDLING_MS), handle)

    def _handle(
        self,
        reader: QueueFetcher,
        message: ReceivedMessage,
        record: StoredMessage,
        generation: int,
        losses_count: int,
    ) -> None:
        """A handler returns, or fails: then the message is handed out here again. What came before
        a loss of power may be gone: another one may stand at its place."""
        if not self._is_read(reader) or generation != reader.shelf.generation:
            return
        if self.stage.happens(_FAILED_SHARE):
            self.stage.done["messages whose handling failed"] += 1
            reader.shelf.put_back([message], generation=generation)
            (again,) = reader.shelf.take(1)
            handle = partial(self._handle, reader, again, record, generation, losses_count)
            self.after(_PAUSE_MS, handle)
            return
        if losses_count == self._checker.losses_count:
            self._checker.consumed(GROUP, record)
        self._handled.add(reader.queue, message.queue_offset)
        self.stage.done["messages handled by the SDK"] += 1
        reader.shelf.mark_settled(message.queue_offset, generation=generation)
        self._pull(reader)


def sdk_consumers(
    stage: Stage, network: SimNetwork, broker: Address, *, plan: Plan, checker: Checker
) -> list[SdkConsumer]:
    """The members of the group; none in a world without the SDK."""
    handled = Handled()
    return [
        SdkConsumer(
            stage, network, broker, number=number, plan=plan, checker=checker, handled=handled
        )
        for number in (range(1, _MEMBERS + 1) if plan.has_sdk else ())
    ]
