"""What the request handlers of one broker share."""

from __future__ import annotations

import collections
from collections.abc import Callable

import msgspec

from escrowmq.base.command import Command
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
from escrowmq.broker.calls import Calls
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


class Peer:
    """One connection as the broker sees it."""

    __slots__ = (
        "account",
        "address",
        "counted_for",
        "host",
        "id",
        "identity",
        "is_stranger",
        "packed",
        "reader",
        "session",
        "signed_number",
    )

    def __init__(self, peer: int, host: str, port: int, reader: FrameReader | None = None) -> None:
        self.id = peer
        self.host = host
        self.address = f"{host}:{port}"
        self.account = ""
        """Of whom the last heartbeat was that the door let in."""
        self.counted_for = ""
        """Whose quota of connections it is in."""
        self.identity = ""
        """The account that its certificate stands for."""
        self.session = ""
        """What our own clients sign on this connection beside their requests."""
        self.signed_number = 0
        """Of the last request that was signed so."""
        self.is_stranger = False
        """Has still to prove who it is."""
        self.packed = pack_host(host, port)
        self.reader = reader or FrameReader()


Handler = Callable[[Peer, Command, int], bytes | None]
"""Judges one request; the reply's frame, or None when there is none yet (or ever)."""


class Waiting(msgspec.Struct):
    """A reply that may leave once the log is durable up to an offset."""

    log_end: int
    peer: int
    request: Command
    reply: bytes
    timeout_reply: bytes
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
        self.calls = Calls()
        self.set_aside_counts: list[Callable[[], int]] = []
        self.asked = AskedTable()
        self.account_of: Callable[[Peer, Command], str] | None = None
        """Of whom a request is that was let in, empty where nobody had to prove it; None while
        names have no owners: without access control, and where it is to be as the peer's."""
        self.producer_hooks: list[Callable[[str, Channel, int], None]] = []
        self.peers: dict[int, Peer] = {}
        self.polls_counts: collections.Counter[str] = collections.Counter()
        """Long polls of each account."""
        self.half_frames = HalfFrames(HALF_FRAMES_SIZE_MAX)
        self.strangers_half_frames = HalfFrames(STRANGERS_HALF_FRAMES_SIZE_MAX)
        self.effects: list[Effect] = []
        self.outbox: dict[int, list[bytes]] = {}
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
