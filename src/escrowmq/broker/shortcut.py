"""The short cut: plain messages of ordinary producers, from the bytes of their frames to the bytes
of the replies, without a value for each step in between.

The general way (remoting, serving, on_send, Store.put) is what a send means. What is served here is
what means the same there, whatever else is true: `_is_open` asks that of the broker and of the
connection, `_find_target` of the topic, codec/shapes of the request and of the names of its
properties, `Run.put` of sizes and room. In any doubt a frame goes the general way, behind those
that were served here before it. A property test holds both ways to the same replies, files and
figures, to the byte.

Nothing is answered, counted or seen before `Run.commit` has written all of it. When it cannot,
nothing has happened, and everything goes the general way, which says why.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from typing import Final

from escrowmq.base.codes import Flag, Request
from escrowmq.base.message import NOT_SENDABLE, Property, Topic
from escrowmq.broker.arrivals import Arrivals
from escrowmq.broker.entry import MARKED, ODD
from escrowmq.broker.peer import Peer
from escrowmq.broker.putting import DIVERTING
from escrowmq.broker.serving import Serving
from escrowmq.broker.state import Broker
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.properties import encode_properties
from escrowmq.codec.sent_template import SentTemplate
from escrowmq.codec.shapes import Properties, SendShape, learn_send, read_json_send
from escrowmq.store.run import Tail

_log = logging.getLogger(__name__)

_FRONT: Final = struct.Struct(">IIh").unpack_from
"""Frame size, kind and header size, code (of a binary header)."""

_FRONT_SIZE: Final = 10
_JSON_SEND: Final = b'{"code":310,'
_JSON_REST_MAX: Final = 2048
"""Of a header in JSON, without the properties: more has fields that nobody expects."""

_IPV4_SIZE: Final = 8
_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 8
_CREDIT_MAX: Final = 64
"""A connection learns a shape for every so many requests of a known one, and some at first: whose
requests are never alike does not pay for it each time."""

_KEYS_MAX: Final = 16
_TARGETS_MAX: Final = 10_000
_DIGITS_MAX: Final = 9
_TIME_DIGITS_MAX: Final = 18
_SPECIAL: Final = MARKED | DIVERTING | {
    Property.TRAN_MSG, Property.REPLY_TO_CLIENT,
    Property.MSG_REGION, Property.TRACE_ON, Property.CLUSTER,
}  # fmt: skip
"""Properties by which a message is no plain one, or which the broker sets itself."""


class Target:
    """Where the plain messages for a queue go, and what is answered to them."""

    __slots__ = ("replies", "tail")

    def __init__(self, tail: Tail, replies: SentTemplate) -> None:
        self.tail = tail
        self.replies = replies


class Habits:
    """What is known of the requests of one connection."""

    __slots__ = ("credit", "shapes")

    def __init__(self) -> None:
        self.shapes: list[SendShape] = []
        self.credit = _CREDIT_MAX

    def learn(self, data: bytes, at: int, header_end: int) -> None:
        """A request was of no known shape; the next one like it will be."""
        self.credit -= _LEARN_COST
        if self.credit < 0:
            self.credit += _LEARN_COST + 1
            return
        shape = learn_send(data, at, header_end)
        if shape is not None:
            self.shapes.insert(0, shape)
            del self.shapes[_SHAPES_MAX:]


class Shortcut:
    """Serves what it can of a connection's bytes."""

    def __init__(self, broker: Broker, serving: Serving, arrivals: Arrivals) -> None:
        self._broker = broker
        self._serving = serving
        self._is_awaited = arrivals.is_awaited
        self._run = broker.store.run(broker.packed)
        self._properties = Properties(_SPECIAL)
        self._said: dict[str, str] = {}
        self._suffix = b""
        self._topics_version = -1
        self._targets: dict[tuple[str, int], Target] = {}
        self._shut_ms = -1
        self._replies: list[bytes] = []
        self._counts: Counter[tuple[int, int, int]] = Counter()
        self.served_count = 0
        """Requests that were served here."""

    def serve(
        self, peer: Peer, habits: Habits, reader: FrameReader, data: bytes, at: int, now_ms: int
    ) -> int:
        """Serve frames from a place on until one is not to be served here; the place of that."""
        if not self._is_open(peer, now_ms):
            return at
        run, broker = self._run, self._broker
        run.begin(now_ms)
        try:
            end = self._put_frames(peer, habits, data, at, reader.frame_size_max)
        except Exception:  # noqa: BLE001 - nothing has happened yet, and the general way can tell
            _log.exception("plain messages of %s go the general way", peer.address)
            self._shut_ms = now_ms
            end = at
        if end > at and run.commit(self._is_awaited):
            for tail in run.touched:
                broker.stats.put_each(tail.topic, tail.sizes)
            broker.latency.count_at_once(self._counts)
            count = self._counts.total()
            reader.count += count
            self.served_count += count
            if self._replies:
                broker.send(peer.id, *self._replies)
        elif end > at:
            self._shut_ms = now_ms
            end = at
        run.done()
        self._replies.clear()
        self._counts.clear()
        return end

    def _put_frames(self, peer: Peer, habits: Habits, data: bytes, at: int, size_max: int) -> int:
        left = len(data) - at
        while left >= _FRONT_SIZE:
            size, word, code = _FRONT(data, at)
            header_end, end = at + 8 + (word & 0xFFFFFF), at + 4 + size
            if size + 4 > left or header_end > end or size + 4 > size_max:
                break
            if word >> 24 == 1:
                if code != Request.SEND_MESSAGE_V2:
                    break
                if not self._put_binary(peer, habits, data, at, header_end, end):
                    break
            elif (
                word >> 24
                or not data.startswith(_JSON_SEND, at + 8)
                or not self._put_json(peer, data, at + 8, header_end, end)
            ):
                break
            at = end
            left -= 4 + size
        return at

    # -- whether it may be -----------------------------------------------------------------------

    def _is_open(self, peer: Peer, now_ms: int) -> bool:
        """Whether plain messages of a peer are stored without being asked anything more."""
        broker = self._broker
        settings = broker.settings
        if (
            self._serving.is_judging
            or broker.waited_ms > settings.half_wait_max_ms
            or settings.accepts_sends_from_ms > now_ms
            or now_ms == self._shut_ms
            or len(peer.packed) != _IPV4_SIZE
            or len(broker.packed) != _IPV4_SIZE
            or not self._run.is_allowed
        ):
            return False
        version, said = broker.topics.version.counter, broker.frames.said_to_senders()
        if version != self._topics_version or said is not self._said:
            self._topics_version, self._said = version, said
            self._suffix = encode_properties({**said, Property.CLUSTER: settings.cluster})
            self._targets.clear()
        return True

    def _find_target(self, topic: str, queue_id: int) -> Target | None:
        """Where plain messages for a queue go; None when they have to be asked more."""
        broker = self._broker
        config = broker.topics.get(topic)
        if (
            config is None
            or config.order
            or topic in NOT_SENDABLE
            or topic.startswith((Topic.RETRY_PREFIX, Topic.SYSTEM_PREFIX))
            or queue_id >= max(config.read_queue_nums, config.write_queue_nums)
            or config.topic_filter_type == "MULTI_TAG"
            or config.attributes.get("cleanup.policy") == "COMPACTION"
        ):
            return None
        tail = self._run.tail(topic, queue_id)
        if tail is None:
            return None
        if len(self._targets) >= _TARGETS_MAX:
            self._targets.clear()
        target = Target(tail, SentTemplate(self._said, broker.packed, queue_id))
        self._targets[topic, queue_id] = target
        return target

    # -- one message -----------------------------------------------------------------------------

    def _put_binary(
        self, peer: Peer, habits: Habits, data: bytes, at: int, header_end: int, end: int
    ) -> bool:
        for shape in habits.shapes:
            alike = shape.match(data, at, header_end)
            if alike is not None:
                break
        else:
            habits.learn(data, at, header_end)
            return False
        if habits.credit < _CREDIT_MAX:
            habits.credit += 1
        opaque, queue, born, properties = alike
        header = shape.header
        if header.batch or shape.flag & Flag.REPLY or not _are_numbers(queue, born):
            return False
        place = header.topic, int(queue)
        target = self._targets.get(place) or self._find_target(*place)
        if target is None:
            return False
        key = self._put(
            peer, target, properties, data[header_end:end],
            header.flag, header.sys_flag, int(born), header.reconsume_times,
        )  # fmt: skip
        if not key:
            return False
        if not shape.flag & Flag.ONE_WAY:
            tail = target.tail
            reply = target.replies.binary(opaque, tail.log_offset, tail.next_offset - 1, key)
            self._replies.append(reply)
        self._counts[Request.SEND_MESSAGE_V2, 0, shape.flag & Flag.ONE_WAY] += 1
        return True

    def _put_json(self, peer: Peer, data: bytes, at: int, header_end: int, end: int) -> bool:
        found = read_json_send(data[at:header_end])
        if found is None or found.flag & Flag.REPLY:
            return False
        ext = found.extFields
        properties, numbers = ext.i, (ext.e, ext.f, ext.h, ext.j)
        if (
            ext.m != "false"
            or header_end - at - len(properties) > _JSON_REST_MAX
            or not all(map(_is_int, numbers))
            or not _is_long(ext.g)
            or not properties.isascii()
        ):
            return False
        queue_id, sys_flag, flag, reconsume_times = map(int, numbers)
        target = self._targets.get((ext.b, queue_id)) or self._find_target(ext.b, queue_id)
        if target is None:
            return False
        key = self._put(
            peer, target, properties.encode(), data[header_end:end],
            flag, sys_flag, int(ext.g), reconsume_times,
        )  # fmt: skip
        if not key:
            return False
        if not found.flag & Flag.ONE_WAY:
            tail = target.tail
            reply = target.replies.json(found.opaque, tail.log_offset, tail.next_offset - 1, key)
            self._replies.append(reply)
        self._counts[Request.SEND_MESSAGE_V2, 0, found.flag & Flag.ONE_WAY] += 1
        return True

    def _put(  # noqa: PLR0913 - what a record is made of
        self,
        peer: Peer,
        target: Target,
        properties: bytes,
        body: bytes,
        flag: int,
        sys_flag: int,
        born_ms: int,
        reconsume_times: int,
    ) -> bytes:
        """Put a message: its unique key; nothing when it is no plain one."""
        if properties[-1:] != b"\x02":  # clients leave the last one out
            properties += b"\x02"
        found = self._properties.read(properties)
        if found is None or sys_flag & ODD:
            return b""
        plan, fields = found
        keys = fields[plan.keys].split(b" ") if plan.keys >= 0 else ()
        if len(keys) > _KEYS_MAX:
            return b""
        code = tags_code(fields[plan.tags].decode()) if plan.tags >= 0 else 0
        run, tail = self._run, target.tail
        log_offset = run.put(
            tail, body, properties + self._suffix, code, flag, sys_flag, born_ms, peer.packed,
            reconsume_times,
        )  # fmt: skip
        if log_offset < 0:
            return b""
        key, prefix, stored_ms = fields[plan.key], tail.key_prefix, run.stored_ms
        run.keys.append((prefix, key, log_offset, stored_ms))
        for one in keys:
            if one:
                run.keys.append((prefix, one, log_offset, stored_ms))
        return key


def starts_send(data: bytes, at: int) -> bool:
    """Whether a send request may start at a place: asked before anything else is."""
    return data.startswith(_JSON_SEND, at + 8) or data[at + 8 : at + 10] == _BINARY_SEND


_BINARY_SEND: Final = Request.SEND_MESSAGE_V2.to_bytes(2, "big")


def _are_numbers(queue: bytes, born: bytes) -> bool:
    """As clients write them: other forms mean the same or nothing, which the general way knows."""
    return (
        queue.isdigit()
        and born.isdigit()
        and len(queue) <= _DIGITS_MAX
        and (queue[0] != 48 or len(queue) == 1)
        and (born[0] != 48 or len(born) == 1)
    )


def _is_int(text: str) -> bool:
    return (
        len(text) <= _DIGITS_MAX
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
    )


def _is_long(text: str) -> bool:
    return (
        len(text) <= _TIME_DIGITS_MAX
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
    )
