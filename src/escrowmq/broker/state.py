"""What the request handlers of one broker share."""

from __future__ import annotations

import collections
from collections.abc import Callable

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag
from escrowmq.base.effects import Effect
from escrowmq.base.message import Message
from escrowmq.base.ports import Chance
from escrowmq.base.settings import BrokerSettings, StoreSettings
from escrowmq.broker.asked import Question
from escrowmq.broker.calls import Calls, OnAnswer
from escrowmq.broker.frames import Frames
from escrowmq.broker.latency import Latency
from escrowmq.broker.peer import Peer
from escrowmq.broker.waiting import WaitingAnswers
from escrowmq.codec.bodies import SubscriptionBody
from escrowmq.codec.ids import pack_host
from escrowmq.delivery.asked import AskedTable
from escrowmq.delivery.clients import Channel, Clients, ConsumerGroup
from escrowmq.delivery.delay import DelayQueues
from escrowmq.delivery.locks import QueueLocks
from escrowmq.delivery.made import Made, Present
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.poppers import Poppers
from escrowmq.delivery.stats import Stats
from escrowmq.delivery.subscriptions import GroupTable
from escrowmq.delivery.timer import TimerQueue
from escrowmq.delivery.topics import TopicTable
from escrowmq.store.store import Put, Store


class Broker:
    """State of one broker, handed to every handler."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        store: Store,
        *,
        address: tuple[str, int],
        chance: Chance,
    ) -> None:
        self.settings = settings
        self.store_settings = store_settings
        self.store = store
        self.chance = chance
        self.address = f"{address[0]}:{address[1]}"
        self.packed = pack_host(*address)
        self.started_ms = 0
        self.now_ms = 0
        """When the present input came."""
        self.waited_ms = 0
        """For so long the present input waited, at least."""
        self.shed_count = 0
        """Halves and sends refused because they had waited too long."""
        self.present = Present()
        names = [
            Made(self.present, most=settings.account_topics_max, setting="escrowAccountTopics"),
            Made(self.present, most=settings.account_groups_max, setting="escrowAccountGroups"),
        ]
        self.topics = TopicTable(settings, made=names[0])
        self.groups = GroupTable(settings, made=names[1])
        self.clients = Clients(of_account_max=settings.account_memberships_max)
        self.poppers = Poppers()
        self.offsets = OffsetTable()
        self.locks = QueueLocks()
        self.delays = DelayQueues(store, store_settings, self._put_delayed)
        self.timer = TimerQueue(store, settings, self._put_delayed)
        self.release = ""
        """Which EscrowMQ this is; the process knows."""

        self.stats = Stats()
        self.latency = Latency()
        self.calls = Calls()
        self.set_aside_counts: list[Callable[[], int]] = [
            lambda: self.delays.courier.dropped_count,
            lambda: self.timer.courier.dropped_count,
        ]
        self.asked = AskedTable()
        self.has_owners = False
        """Whether names belong to the account that began them: not without access control, nor
        where it is to be as RocketMQ's."""
        self.producer_hooks: list[Callable[[str, Channel, int], None]] = []
        self.peers: dict[int, Peer] = {}
        self.polls_counts: collections.Counter[str] = collections.Counter()
        """Long polls of each account."""
        self.effects: list[Effect] = []
        self.outbox: dict[int, list[bytes]] = {}
        self.frames = Frames(settings)
        self.waiting = WaitingAnswers(self.say)

    def answer(
        self, asked: Question, reply: Answer | Refusal, *, since_ms: int | None = None
    ) -> None:
        """Say it, or keep it until what it tells of is durable: from the question's time on, or
        from a later one."""
        if (
            isinstance(reply, Answer)
            and reply.log_end
            and reply.log_end > self.store.durable_offset
            and not asked.command.flag & Flag.ONE_WAY
        ):
            since_ms = asked.now_ms if since_ms is None else since_ms
            until_ms = since_ms + self.store_settings.sync_timeout_ms
            self.waiting.keep(asked, reply, until_ms=until_ms)
        else:
            self.say(asked, reply)

    def say(self, asked: Question, reply: Answer | Refusal) -> None:
        """Say it now."""
        asked.peer.dialogue.answer(asked.command, reply)
        row, took_ms = asked.row, self.now_ms - asked.now_ms
        is_one_way = asked.command.flag & Flag.ONE_WAY
        if took_ms <= 0:
            self.latency.at_once[row.code, reply.code, is_one_way] += 1
        else:
            self.latency.note(row, reply.code, took_ms, is_one_way=is_one_way)

    def tell(self, peer: int, code: int, *, ext: dict[str, str], body: bytes = b"") -> None:
        """Send a client a request that it does not answer."""
        known = self.peers.get(peer)
        if known is not None:
            known.dialogue.ask(code, self.calls.next_opaque(), ext, body, is_one_way=True)

    def call(
        self,
        peer: int,
        code: int,
        *,
        ext: dict[str, str] | None,
        body: bytes = b"",
        on_answer: OnAnswer,
        until_ms: int,
    ) -> None:
        """Send a client a request, and hear what it says or that it does not."""
        opaque = self.calls.next_opaque()
        self.calls.expect(opaque, peer, on_answer, until_ms)
        known = self.peers.get(peer)
        if known is not None:
            known.dialogue.ask(code, opaque, ext, body, is_one_way=False)

    def send(self, peer: int, *chunks: bytes) -> None:
        """Queue bytes for a peer; they leave in one write at the end of this input."""
        queue = self.outbox.get(peer)
        if queue is None:
            self.outbox[peer] = list(chunks)
        else:
            queue.extend(chunks)

    def is_there(self, peer: int) -> bool:
        """Whether somebody is there, and can be asked something."""
        known = self.peers.get(peer)
        return known is not None and not known.is_away

    def online(self, group: str) -> ConsumerGroup | None:
        """The live members of a group: those of its heartbeats, else those who pop."""
        return self.clients.consumers.get(group) or self.poppers.find(group)

    def subscription(self, group: str, topic: str) -> SubscriptionBody | None:
        """What a live group reads of a topic."""
        for known in (self.clients.consumers.get(group), self.poppers.find(group)):
            if known is not None and topic in known.subscriptions:
                return known.subscriptions[topic]
        return None

    def _put_delayed(self, message: Message, now_ms: int) -> Put:
        """Store a message whose time has come, where somebody reads it."""
        message.queue_id = self.topics.queue_read(message.topic, message.queue_id)
        return self.store.put(message, now_ms)

    def set_aside_count(self) -> int:
        """Records that were passed over because nothing could be done about them."""
        return sum(count() for count in self.set_aside_counts)

    def on_producer(self, group: str, channel: Channel, now_ms: int) -> None:
        """A producer that was not there before can be asked now."""
        for hook in self.producer_hooks:
            hook(group, channel, now_ms)
