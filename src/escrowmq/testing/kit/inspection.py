"""Shows the contents of a test's broker: bodies, for comparison, and everything as text, for failed
comparisons."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Iterator
from typing import Final

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.client.core.message import ReceivedMessage, to_received_message
from escrowmq.codec.compression import decompress
from escrowmq.codec.fastjson import decode_fastjson, decode_queue_map
from escrowmq.errors import RemoteProtocolError
from escrowmq.store.walk import walk_queue
from escrowmq.testing.kit.core import KitCore
from escrowmq.txn.half_records import target_queue
from escrowmq.txn.state import State

_SHOWN_MAX: Final = 20
"""Limit of the messages of each kind in a description."""

_INNER: Final = "CLIENT_INNER_PRODUCER"


class Found(list[bytes]):
    """Bodies found in a broker. `told` describes everything else in the broker; pytest shows it if
    a comparison fails."""

    told: str = ""


class Inspection:
    """Reads the contents of a broker's core."""

    def __init__(self, core: KitCore) -> None:
        self._core = core
        self._store = core.broker.store
        self._halves = core.transactions.engine.halves

    # -- messages --------------------------------------------------------------------------------

    def visible(self, topic: str) -> list[StoredMessage]:
        """Return the messages of a topic that consumers can see, in the order in which they were
        stored."""
        found: list[StoredMessage] = []
        for queue_id in self._store.queues_of(topic):
            low, end = self._store.bounds(topic, queue_id)
            found += walk_queue(self._store, topic, low, end, queue_id=queue_id)
        return sorted(found, key=lambda message: message.log_offset)

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """Return the visible messages of a topic as users receive them."""
        name = self._core.broker.settings.name
        return [to_received_message(message, broker_name=name) for message in self.visible(topic)]

    def delivered(self, topic: str) -> list[bytes]:
        """Return the bodies of the visible messages of a topic."""
        return [_body(message) for message in self.visible(topic)]

    def dead(self, group: str) -> list[bytes]:
        """Return the bodies of a group's dead letters."""
        return self.delivered(Topic.DLQ_PREFIX + group)

    # -- transactions ----------------------------------------------------------------------------

    def _pending_messages(self, topic: str | None) -> Iterator[tuple[int, StoredMessage]]:
        for queue_offset in self._halves.pending.offsets_after(-1):
            half = self._core.transactions.engine.halves.read_half(queue_offset)
            if half is not None and topic in (None, half.properties.get(Property.REAL_TOPIC)):
                yield queue_offset, half

    def pending(self, topic: str | None) -> list[bytes]:
        """Return the bodies of open transactions."""
        return [_body(half) for _, half in self._pending_messages(topic)]

    def parked(self, topic: str | None) -> list[bytes]:
        """Return the bodies of open transactions without a connected producer."""
        checker = self._core.transactions.checker
        return [
            _body(half)
            for queue_offset, half in self._pending_messages(topic)
            if checker.is_parked(queue_offset, half.properties.get(Property.PGROUP, ""))
        ]

    def _discarded_messages(self, topic: str | None) -> Iterator[StoredMessage]:
        state_of = self._core.transactions.resumption.state_of
        for message in self.visible(Topic.CHECK_MAX_TIME):
            is_of = topic in (None, message.properties.get(Property.REAL_TOPIC))
            if is_of and state_of(message) is State.EXPIRED:
                yield message

    def discarded(self, topic: str | None) -> list[bytes]:
        """Return the bodies of transactions that were given up."""
        return [_body(message) for message in self._discarded_messages(topic)]

    # -- all of it -------------------------------------------------------------------------------

    def describe(self, now_ms: int) -> str:
        """Describe the broker's contents, with a line per message."""
        lines = [*self._describe_topics(), *self._describe_pending(now_ms)]
        later = list(self._describe_delayed(now_ms))
        if later:
            lines.append(f"comes later: {_join_limited(later)}")
        given_up = [f"{_body(m)!r}" for m in self._discarded_messages(None)]
        if given_up:
            lines.append(f"given up: {_join_limited(given_up)}")
        time = dt.datetime.fromtimestamp(now_ms / 1000, dt.UTC)
        lines += [f"connected: {_join_limited(self._describe_clients()) or 'nobody'}"]
        lines += [f"time: {time:%Y-%m-%d %H:%M:%S} UTC"]
        return "\n".join(lines)

    def _describe_topics(self) -> Iterator[str]:
        nothing = True
        for topic in sorted(self._store.topics()):
            if topic.startswith(Topic.RETRY_PREFIX) or self._core.broker.topics.is_system(topic):
                continue
            messages = self.visible(topic)
            if messages:
                nothing = False
                is_dead = topic.startswith(Topic.DLQ_PREFIX)
                name = topic.removeprefix(Topic.DLQ_PREFIX)
                what = f"dead letters of {name!r}" if is_dead else f"delivered to {topic!r}"
                found = [_describe_message(message) for message in messages]
                yield f"{what}: {_join_limited(found)}"
        if nothing:
            yield "delivered: nothing"

    def _describe_delayed(self, now_ms: int) -> Iterator[str]:
        """Describe the delayed messages, and the failed ones that wait for a retry."""
        for topic in (Topic.SCHEDULE, Topic.TIMER):
            for queue_id in self._store.queues_of(topic):
                low, end = self._store.bounds(topic, queue_id)
                dues = [
                    code for _, _, code in self._store.read_units(topic, queue_id, low, end - low)
                ]
                messages = walk_queue(self._store, topic, low, end, queue_id=queue_id)
                for code, message in zip(dues, messages, strict=False):
                    due_ms = int(message.properties.get(Property.TIMER_OUT_MS, code))
                    if due_ms > now_ms:
                        place = message.properties.get(Property.REAL_TOPIC, "")
                        where = (
                            f"group {place.removeprefix(Topic.RETRY_PREFIX)!r}, again"
                            if place.startswith(Topic.RETRY_PREFIX)
                            else repr(place)
                        )
                        left_s = (due_ms - now_ms) / 1000
                        yield f"{_describe_message(message)} to {where}, in {left_s:.0f} s"

    def _describe_pending(self, now_ms: int) -> Iterator[str]:
        checker, pending = self._core.transactions.checker, self._halves.pending
        parts = []
        for queue_offset, half in self._pending_messages(None):
            row = pending.row(queue_offset)
            if checker.is_parked(queue_offset, row.group):
                waits = "parked: no producer of the group is connected"
            elif checker.has_unanswered_check(queue_offset):
                waits = "has been asked about, without an answer yet"
            else:
                waits = f"its check is due in {max(0, row.due_ms - now_ms) / 1000:g} s"
            place = target_queue(half)
            topic = place[0] if place else "?"
            parts.append(
                f"{_describe_message(half)} to {topic!r}, of group {row.group!r}, "
                f"asked {row.checks} times; {waits}"
            )
        yield f"pending: {_join_limited(parts) or 'nothing'}"

    def _describe_clients(self) -> list[str]:
        clients = self._core.broker.clients
        found = [f"a producer of {g!r}" for g in clients.producers if g != _INNER]
        return found + [f"a consumer of {g!r}" for g in clients.consumers]


def _body(message: StoredMessage) -> bytes:
    try:
        return decompress(message.body, message.sys_flag)
    except RemoteProtocolError:  # consumers refuse it; a test must see that it is there
        return message.body


def _describe_message(message: StoredMessage) -> str:
    keys = message.properties.get(Property.KEYS, "")
    return f"{_body(message)!r}{f' (keys {keys})' if keys else ''}"


def _join_limited(parts: list[str]) -> str:
    more = len(parts) - _SHOWN_MAX
    return ", ".join(parts[:_SHOWN_MAX]) + (f", and {more} more" if more > 0 else "")


class GroupProgress:
    """The progress of a group's consumers, as they report it."""

    def __init__(self, core: KitCore, group: str) -> None:
        self._core = core
        self._group = group
        self._offsets: dict[tuple[str, int], int] = {}

    def request_progress(self) -> None:
        """Ask every member for its progress; the answers arrive later."""
        group = self._core.broker.clients.consumers.get(self._group)
        if group is None:
            return
        for peer, topic in itertools.product(group.channels, group.subscriptions):
            fields = {"topic": topic, "group": self._group}
            self._core.ask(peer, Request.GET_CONSUMER_STATUS_FROM_CLIENT, fields, self._on_reply)

    def _on_reply(self, reply: Command | None, now_ms: int) -> None:
        if reply is None or not reply.body:
            return
        table = decode_fastjson(reply.body)["messageQueueTable"]
        for queue, queue_offset in decode_queue_map(table).items():
            self._offsets[queue.topic, queue.queue_id] = int(queue_offset)

    def unhandled_counts(self) -> dict[str, int]:
        """Return, by topic, the number of messages that the group has not handled yet."""
        broker = self._core.broker
        group = broker.clients.consumers.get(self._group)
        found: dict[str, int] = {}
        for topic in [] if group is None else group.subscriptions:
            for queue_id in broker.store.queues_of(topic):
                low, end = broker.store.bounds(topic, queue_id)
                kept = broker.offsets.get(self._group, topic, queue_id)
                done = max(low, kept, self._offsets.get((topic, queue_id), -1))
                if end > done:
                    found[topic] = found.get(topic, 0) + end - done
        return found

    @property
    def has_members(self) -> bool:
        """Whether a member of the group is connected."""
        return self._group in self._core.broker.clients.consumers
