"""Sends rows as half messages to one broker; one decision makes them visible later."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.base.own_properties import EPOCH, ORDER_KEY, TOKEN
from escrowmq.client.core.queue_choice import QueueChooser
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import (
    Compression,
    OutgoingMessage,
    make_outgoing,
    properties_of,
    send_fields,
)
from escrowmq.client.core.unique_ids import UniqueIds
from escrowmq.client.core.validation import check_message
from escrowmq.client.host import local_address
from escrowmq.errors import (
    AlreadySettled,
    ConnectFailed,
    EscrowMQError,
    ServiceNotAvailable,
    TransportError,
    UsageError,
    response_error,
)
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import Cluster, pause
from escrowmq.pipeline.brokers.link import BUSY, BrokerLink
from escrowmq.pipeline.sink.options import IN_FLIGHT_SIZE_MAX, RESTART_WAIT_MS, SinkOptions
from escrowmq.pipeline.sink.rows import AddressedMessage

_LOOK_MS: Final = 200
BUSY_MS: Final = 60_000
"""Sends of a half to a busy broker are retried for this many milliseconds."""


class HalfSender:
    """Sends the rows of one task attempt. Each call has a token of its own. If it is unknown
    whether a message is stored, or the broker cannot store any now, all messages of the call are
    sent again under another token; the decision then drops those with the old one. The same happens
    if a busy broker refuses a message and accepts the next one of its order key; from then on each
    message of an order key waits for the one before."""

    def __init__(self, options: SinkOptions, *, broker_name: str, epoch: str) -> None:
        self._options = options
        self._broker_name = broker_name
        self._epoch = epoch
        self._cluster = Cluster(options.access, tries=3, try_again_ms=1_000)
        self._patient = Cluster(
            options.access, tries=RESTART_WAIT_MS // _LOOK_MS, try_again_ms=_LOOK_MS
        )
        self._chance = secrets.SystemRandom()
        self._chooser = QueueChooser(self._chance)
        mark = self._chance.getrandbits(32)
        self._ids = UniqueIds(host=local_address(), process=os.getpid(), mark=mark)
        self._clock = SystemClock()
        self._link: BrokerLink | None = None
        self._in_flight_size = 0
        """The bytes of the bodies in flight."""
        self._is_careful = False
        """Whether at most one half of an order key is in flight."""
        self.tokens: list[str] = []
        """All tokens used, including those of abandoned calls."""

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()
        self._patient.close()
        self._drop_link()

    def send(self, rows: Sequence[AddressedMessage]) -> tuple[str, int]:
        """Store rows as halves; return their token and their number."""
        left = self._options.sending.retries
        failing_since_ms: int | None = None
        while True:
            token = secrets.token_hex(16)
            self.tokens.append(token)
            try:
                self._send(rows, token)
            except (ConnectFailed, ServiceNotAvailable, _UnconfirmedStoreError):
                # It restarts, or its group changes its master: the next one goes to that then.
                self._drop_link()
                failing_since_ms = failing_since_ms or self._clock.now_ms()
                if self._clock.now_ms() - failing_since_ms > RESTART_WAIT_MS:
                    raise
                pause()
            except (TransportError, _UnsafeStoreError):
                self._drop_link()
                if not left:
                    raise
                left -= 1
                pause()
            except _OvertakenError:
                self._drop_link()
                self._is_careful = True  # so it does not happen again
            else:
                return token, len(rows)

    def _send(self, rows: Sequence[AddressedMessage], token: str) -> None:
        link = self._open_link()
        under_way: deque[_HalfInFlight] = deque()
        since_ms = self._clock.now_ms()
        self._in_flight_size = 0
        for row in rows:
            out, queue = self._build_half(row, token)
            order = (row.message.topic, row.message.order_key)
            while self._is_careful and _is_ordered_after(order, under_way):
                self._await_oldest(link, under_way, since_ms)
            while under_way and self._in_flight_size + len(out.body) > IN_FLIGHT_SIZE_MAX:
                self._await_oldest(link, under_way, since_ms)
            under_way.append(_HalfInFlight(self._post(link, out, queue), out, queue, order))
            self._in_flight_size += len(out.body)
            while len(under_way) >= self._options.sending.at_once:
                self._await_oldest(link, under_way, since_ms)
        while under_way:
            self._await_oldest(link, under_way, since_ms)

    def _await_oldest(
        self, link: BrokerLink, under_way: deque[_HalfInFlight], since_ms: int
    ) -> None:
        posted = under_way.popleft()
        reply = link.take_reply(posted.number)
        if reply.code == Response.SUCCESS:
            self._in_flight_size -= len(posted.out.body)
            return
        if reply.code not in BUSY:
            raise _refusal(reply, self._broker_name)
        if self._clock.now_ms() - since_ms > BUSY_MS:
            raise response_error(reply.code, reply.remark, address=self._broker_name)
        if _is_ordered_after(posted.order, under_way):
            raise _OvertakenError(
                f"{self._broker_name} is busy and refused a half; later ones of the same order key "
                "are in flight"
            )
        pause()
        posted.number = self._post(link, posted.out, posted.queue)
        under_way.append(posted)

    def _post(self, link: BrokerLink, out: OutgoingMessage, queue: MessageQueue) -> int:
        return link.post(
            out.request_code, send_fields(out, queue, group=self._options.group), out.body
        )

    def _build_half(
        self, row: AddressedMessage, token: str
    ) -> tuple[OutgoingMessage, MessageQueue]:
        message = row.message
        check_message(message, body_size_max=self._options.sending.body_size_max)
        now_ms = self._clock.now_ms()
        properties = properties_of(message, unique_key=self._ids.make(now_ms)) | row.extra
        properties[Property.TRAN_MSG] = "true"
        properties[Property.PGROUP] = self._options.group
        properties[Property.CHECK_IMMUNITY_TIME] = str(self._options.timeout_ms // 1000)
        properties[EPOCH] = self._epoch
        properties[TOKEN] = token
        if message.order_key:
            properties[ORDER_KEY] = message.order_key
        compression = Compression(over_size=self._options.sending.compress_over)
        out = make_outgoing(
            message, properties, topic=message.topic, compression=compression, born_ms=now_ms
        )
        return out, self._choose_queue(row)

    def _choose_queue(self, row: AddressedMessage) -> MessageQueue:
        topic = row.message.topic
        queues = self._queues(topic)
        if row.queue_id is None:
            return self._chooser.choose(queues)
        for queue in queues:
            if queue.queue_id == row.queue_id and row.broker_name in ("", self._broker_name):
                return queue
        raise UsageError(
            f"queueId={row.queue_id} (brokerName={row.broker_name!r}) is not a queue of "
            f"{topic} on {self._broker_name}, where this query's batches are decided about; "
            f"it has {len(queues)} there"
        )

    def _queues(self, topic: str) -> list[MessageQueue]:
        if self._cluster.book.get(topic) is None:
            self._cluster.refresh_route(topic)
        found = [
            queue
            for queue in self._cluster.book.write_queues(topic)
            if queue.broker_name == self._broker_name
        ]
        if not found:
            raise UsageError(
                f"the topic {topic} has no writable queue on {self._broker_name}, where this "
                "query's batches are decided about; create it there"
            )
        return found

    def _open_link(self) -> BrokerLink:
        if self._link is None:
            address = self._patient.master_address(self._broker_name)
            timeout_ms = self._options.sending.timeout_ms
            self._link = BrokerLink(address, self._options.access, timeout_ms=timeout_ms)
        return self._link

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None


class _HalfInFlight(msgspec.Struct):
    """A half in flight."""

    number: int
    out: OutgoingMessage
    queue: MessageQueue
    order: tuple[str, str]
    """The topic and the order key."""


def _is_ordered_after(order: tuple[str, str], under_way: Iterable[_HalfInFlight]) -> bool:
    """Whether halves with the same order key are in flight, so that a half must wait for them."""
    return bool(order[1]) and any(posted.order == order for posted in under_way)


class _OvertakenError(EscrowMQError):
    """Raised if a half was refused, and could now be stored only after later ones of its order
    key."""


class _UnsafeStoreError(EscrowMQError):
    """Raised if a half is stored less safely than the broker is configured to."""


class _UnconfirmedStoreError(EscrowMQError):
    """Raised if no replica confirms a half: another member of the group may be the master now."""


class EpochDecided(EscrowMQError):
    """Raised if the batch was decided while it was being written again; nothing more must be
    written."""


def _refusal(reply: Command, broker_name: str) -> EscrowMQError:
    if reply.code in (10, 11, 12):
        is_unconfirmed = reply.code == Response.FLUSH_SLAVE_TIMEOUT
        kind = _UnconfirmedStoreError if is_unconfirmed else _UnsafeStoreError
        return kind(f"{broker_name} stored a half with code {reply.code} only: {reply.remark}")
    error = response_error(reply.code, reply.remark, address=broker_name)
    if isinstance(error, AlreadySettled):
        return EpochDecided(str(error))
    return error
