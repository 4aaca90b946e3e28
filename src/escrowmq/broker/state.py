"""What the request handlers of one broker share."""

from __future__ import annotations

import collections
from collections.abc import Callable

import msgspec

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Flag
from escrowmq.base.effects import Effect
from escrowmq.base.limits import (
    FRAME_SIZE_MAX,
    HALF_FRAMES_SIZE_MAX,
    HEADER_SIZE_MAX,
    STRANGERS_FRAME_SLACK,
    STRANGERS_HALF_FRAMES_SIZE_MAX,
)
from escrowmq.base.ports import Chance
from escrowmq.base.settings import BrokerSettings, StoreSettings
from escrowmq.broker.asked import Question
from escrowmq.broker.calls import Calls, OnAnswer
from escrowmq.broker.latency import Latency
from escrowmq.broker.peer import Peer
from escrowmq.broker.remoting import Remoting
from escrowmq.codec.bodies import SubscriptionBody
from escrowmq.codec.frame import FrameReader, HalfFrames
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
from escrowmq.store.store import Store


class Waiting(msgspec.Struct):
    """An answer that may leave once the log is durable up to an offset."""

    asked: Question
    answer: Answer
    deadline_ms: int


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
        self.delays: DelayQueues | None = None
        self.timer: TimerQueue | None = None
        self.release = ""
        """Which EscrowMQ this is; the process knows."""

        self.stats = Stats()
        self.latency = Latency()
        self.calls = Calls()
        self.set_aside_counts: list[Callable[[], int]] = []
        self.asked = AskedTable()
        self.has_owners = False
        """Whether names belong to the account that began them: not without access control, nor
        where it is to be as RocketMQ's."""
        self.producer_hooks: list[Callable[[str, Channel, int], None]] = []
        self.peers: dict[int, Peer] = {}
        self.polls_counts: collections.Counter[str] = collections.Counter()
        """Long polls of each account."""
        self.half_frames = HalfFrames(HALF_FRAMES_SIZE_MAX)
        self.strangers_half_frames = HalfFrames(STRANGERS_HALF_FRAMES_SIZE_MAX)
        self.effects: list[Effect] = []
        self.outbox: dict[int, list[bytes]] = {}
        self.remoting = Remoting(settings)
        self.waiting: collections.deque[Waiting] = collections.deque()

    def meet(self, peer: int, host: str, port: int, *, is_stranger: bool) -> None:
        """A peer is there."""
        if is_stranger:
            largest = self.store_settings.body_size_max + HEADER_SIZE_MAX + STRANGERS_FRAME_SLACK
            room = self.strangers_half_frames
        else:
            largest, room = FRAME_SIZE_MAX, self.half_frames
        reader = FrameReader(room, frame_size_max=min(largest, FRAME_SIZE_MAX))
        self.peers[peer] = Peer(peer, host, port, reader)
        self.peers[peer].is_stranger = is_stranger

    def let_in(self, peer: Peer) -> None:
        """A stranger has proved who it is."""
        peer.is_stranger = False
        peer.reader.let_in(self.half_frames)

    def answer(
        self, asked: Question, reply: Answer | Refusal, *, since_ms: int | None = None
    ) -> None:
        """Say it, or keep it until what it tells of is durable: from the question's time on, or
        from a later one."""
        is_one_way = asked.command.flag & Flag.ONE_WAY
        if (
            isinstance(reply, Answer)
            and reply.log_end
            and reply.log_end > self.store.durable_offset
            and not is_one_way
        ):
            since_ms = asked.now_ms if since_ms is None else since_ms
            until_ms = since_ms + self.store_settings.sync_timeout_ms
            self.waiting.append(Waiting(asked, reply, until_ms))
            return
        if not is_one_way:
            self.send(asked.peer.id, *self.remoting.frames(asked.command, reply))
        row, took_ms = asked.row, self.now_ms - asked.now_ms
        if took_ms <= 0:
            self.latency.at_once[row.code, reply.code, is_one_way] += 1
        else:
            self.latency.note(row, reply.code, took_ms, is_one_way=is_one_way)

    def tell(self, peer: int, code: int, *, ext: dict[str, str], body: bytes = b"") -> None:
        """Send a client a request that it does not answer."""
        self.send(peer, self.remoting.told(code, self.calls.next_opaque(), ext, body))

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
        self.send(peer, self.remoting.asked(code, opaque, ext, body))
        self.calls.expect(opaque, peer, on_answer, until_ms)

    def send(self, peer: int, *chunks: bytes) -> None:
        """Queue bytes for a peer; they leave in one write at the end of this input."""
        queue = self.outbox.get(peer)
        if queue is None:
            self.outbox[peer] = list(chunks)
        else:
            queue.extend(chunks)

    def online(self, group: str) -> ConsumerGroup | None:
        """The live members of a group: those of its heartbeats, else those who pop."""
        return self.clients.consumers.get(group) or self.poppers.find(group)

    def subscription(self, group: str, topic: str) -> SubscriptionBody | None:
        """What a live group reads of a topic."""
        for known in (self.clients.consumers.get(group), self.poppers.find(group)):
            if known is not None and topic in known.subscriptions:
                return known.subscriptions[topic]
        return None

    def set_aside_count(self) -> int:
        """Records that were passed over because nothing could be done about them."""
        return sum(count() for count in self.set_aside_counts)

    def next_opaque(self) -> int:
        """A request id for a request of ours."""
        return self.calls.next_opaque()

    def on_producer(self, group: str, channel: Channel, now_ms: int) -> None:
        """A producer that was not there before can be asked now."""
        for hook in self.producer_hooks:
            hook(group, channel, now_ms)
