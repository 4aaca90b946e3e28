"""The short cut: plain messages of ordinary producers, their halves and commits, from the bytes of
their frames to the bytes of the replies, without a value for each step in between.

The general way (remoting, serving, on_send, on_end) is what these requests mean. What is served
here is what means the same there, whatever else is true: `_is_open` asks that of the broker and of
the connection, codec/shapes of the request and of the names of its properties, broker/short_puts of
the topic, the half and the values. In any doubt a frame goes the general way, behind those that
were served here before it. A test holds both ways to the same replies, files and figures, to the
byte.

Nothing is answered, counted or seen before all of it is in the log. When that fails, nothing has
happened, and everything goes the general way, which says why.
"""

from __future__ import annotations

import logging
import struct
from collections import Counter
from typing import Final

from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.broker.asked import Asked, Question
from escrowmq.broker.peer import Peer
from escrowmq.broker.serving import Serving
from escrowmq.broker.short_puts import ShortPuts
from escrowmq.broker.state import Broker
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.shapes import (
    EndShape,
    SendShape,
    learn_end,
    learn_send,
    read_json_end,
    read_json_send,
)

_log = logging.getLogger(__name__)

_FRONT: Final = struct.Struct(">IIh").unpack_from
"""Frame size, kind and header size, code (of a binary header)."""

_FRONT_SIZE: Final = 10
_BINARY_SEND: Final = Request.SEND_MESSAGE_V2.to_bytes(2, "big")
_BINARY_END: Final = Request.END_TRANSACTION.to_bytes(2, "big")
_JSON_SEND: Final = b'{"code":%d,' % Request.SEND_MESSAGE_V2
_JSON_END: Final = b'{"code":%d,' % Request.END_TRANSACTION
_JSON_REST_MAX: Final = 2048
"""Of a header in JSON, without the properties: more has fields that nobody expects."""

_IPV4_SIZE: Final = 8
_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 8
_CREDIT_MAX: Final = 64
"""A connection learns a shape for every so many requests of a known one, and some at first: whose
requests are never alike does not pay for it each time."""

_DIGITS_MAX: Final = 9
_LONG_DIGITS_MAX: Final = 18
_COMMIT: Final = 8


def is_short(data: bytes, at: int) -> bool:
    """Whether a request starts at a place that may be served here: asked before all else."""
    code = data[at + 8 : at + 10]
    return code in (_BINARY_SEND, _BINARY_END) or data.startswith((_JSON_SEND, _JSON_END), at + 8)


class Habits:
    """What is known of the requests of one connection."""

    __slots__ = ("credit", "ends", "sends")

    def __init__(self) -> None:
        self.sends: list[SendShape] = []
        self.ends: dict[int, EndShape] = {}
        """By the size of their headers."""
        self.credit = _CREDIT_MAX

    def may_learn(self) -> bool:
        """A request was of no known shape: whether to learn it."""
        self.credit -= _LEARN_COST
        if self.credit >= 0:
            return True
        self.credit += _LEARN_COST + 1
        return False

    def learn_send(self, data: bytes, at: int, header_end: int) -> None:
        """The next send like this one is of a known shape."""
        if self.may_learn() and (shape := learn_send(data, at, header_end)) is not None:
            self.sends.insert(0, shape)
            del self.sends[_SHAPES_MAX:]

    def learn_end(self, data: bytes, at: int, header_end: int) -> None:
        """The next END like this one is of a known shape."""
        if self.may_learn() and (shape := learn_end(data, at, header_end)) is not None:
            if len(self.ends) >= _SHAPES_MAX:
                self.ends.clear()
            self.ends[header_end - at] = shape


class Shortcut:
    """Serves what it can of a connection's bytes."""

    def __init__(self, broker: Broker, serving: Serving, puts: ShortPuts) -> None:
        self._broker = broker
        self._serving = serving
        self._puts = puts
        self._shut_ms = -1
        self._replies: list[bytes] = []
        self._sends_counts: Counter[int] = Counter()
        """By whether their senders want no answer."""
        self._ends_count = 0
        self.served_count = 0
        """Requests that were served here."""

    def serve(
        self, peer: Peer, habits: Habits, reader: FrameReader, data: bytes, at: int, now_ms: int
    ) -> int:
        """Serve frames from a place on until one is not to be served here; the place of that."""
        if not self._is_open(peer, now_ms):
            return at
        self._puts.begin(now_ms)
        try:
            end = self._put_frames(peer, habits, data, at, reader.frame_size_max, now_ms)
        except Exception:  # noqa: BLE001 - nothing has happened yet, and the general way can tell
            _log.exception("requests of %s go the general way", peer.address)
            self._shut_ms, end = now_ms, at
        if end == at:
            self._puts.drop()
        elif self._puts.commit(peer, now_ms):
            self._tell(peer, reader)
        else:
            self._shut_ms, end = now_ms, at
        self._replies.clear()
        self._sends_counts.clear()
        self._ends_count = 0
        return end

    def _tell(self, peer: Peer, reader: FrameReader) -> None:
        """All of it is in the log."""
        at_once, count = self._broker.latency.at_once, self._ends_count
        for is_one_way, sends_count in self._sends_counts.items():
            at_once[Request.SEND_MESSAGE_V2, 0, is_one_way] += sends_count
            count += sends_count
        if self._ends_count:
            self._serving.note_served()  # they are to be sealed
        reader.count += count
        self.served_count += count
        if self._replies:
            self._broker.send(peer.id, *self._replies)

    def _is_open(self, peer: Peer, now_ms: int) -> bool:
        """Whether plain messages of a peer are stored without being asked anything more."""
        broker = self._broker
        return not (
            self._serving.is_judging
            or broker.waited_ms > broker.settings.half_wait_max_ms
            or broker.settings.accepts_sends_from_ms > now_ms
            or now_ms == self._shut_ms
            or len(peer.packed) != _IPV4_SIZE
            or len(broker.packed) != _IPV4_SIZE
            or not self._puts.are_allowed
        )

    def _put_frames(
        self, peer: Peer, habits: Habits, data: bytes, at: int, size_max: int, now_ms: int
    ) -> int:
        """Put what whole frames say, from a place on; where the first is that is not to be put."""
        left = len(data) - at
        while left >= _FRONT_SIZE:
            size, word, code = _FRONT(data, at)
            header_end, end = at + 8 + (word & 0xFFFFFF), at + 4 + size
            if size + 4 > left or header_end > end or size + 4 > size_max:
                break
            is_put = False
            if word >> 24 == 1:
                if code == Request.SEND_MESSAGE_V2:
                    is_put = self._send(peer, habits, data, at, header_end, end)
                elif code == Request.END_TRANSACTION and header_end == end:
                    is_put = self._end(peer, habits, data, at, end, now_ms)
            elif word >> 24 == 0:
                if data.startswith(_JSON_SEND, at + 8):
                    is_put = self._send_in_json(peer, data, at + 8, header_end, end)
                elif data.startswith(_JSON_END, at + 8) and header_end == end:
                    is_put = self._end_in_json(peer, data, at + 8, end, now_ms)
            if not is_put:
                break
            at = end
            left -= 4 + size
        return at

    # -- sends -------------------------------------------------------------------------------------

    def _send(
        self, peer: Peer, habits: Habits, data: bytes, at: int, header_end: int, end: int
    ) -> bool:
        for shape in habits.sends:
            alike = shape.match(data, at, header_end)
            if alike is not None:
                break
        else:
            habits.learn_send(data, at, header_end)
            return False
        if habits.credit < _CREDIT_MAX:
            habits.credit += 1
        opaque, queue, born, properties = alike
        header, flag = shape.header, shape.flag
        if header.batch or flag & Flag.REPLY or not _are_numbers(queue, born):
            return False
        target = self._puts.target(header.topic, int(queue))
        if target is None:
            return False
        found = self._puts.send(
            peer, target, properties, data[header_end:end],
            header.flag, header.sys_flag, int(born), header.reconsume_times,
            wants_id=shape.wants_id,
        )  # fmt: skip
        if found is None:
            return False
        if not flag & Flag.ONE_WAY:
            tail, key = found
            offset = tail.next_offset - 1
            self._replies.append(target.replies.binary(opaque, tail.log_offset, offset, key))
        self._sends_counts[flag & Flag.ONE_WAY] += 1
        return True

    def _send_in_json(self, peer: Peer, data: bytes, at: int, header_end: int, end: int) -> bool:
        found = read_json_send(data[at:header_end])
        if found is None or found.code != Request.SEND_MESSAGE_V2 or found.flag & Flag.REPLY:
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
        target = self._puts.target(ext.b, queue_id)
        if target is None:
            return False
        put = self._puts.send(
            peer, target, properties.encode(), data[header_end:end],
            flag, sys_flag, int(ext.g), reconsume_times, wants_id=bool(ext.escrowWantsId),
        )  # fmt: skip
        if put is None:
            return False
        if not found.flag & Flag.ONE_WAY:
            tail, key = put
            offset = tail.next_offset - 1
            self._replies.append(target.replies.json(found.opaque, tail.log_offset, offset, key))
        self._sends_counts[found.flag & Flag.ONE_WAY] += 1
        return True

    # -- ends --------------------------------------------------------------------------------------

    def _end(self, peer: Peer, habits: Habits, data: bytes, at: int, end: int, now_ms: int) -> bool:
        """A commit of a producer; what else an END may say goes the general way."""
        shape = habits.ends.get(end - at)
        alike = None if shape is None else shape.match(data, at)
        if shape is None or alike is None:
            habits.learn_end(data, at, end)
            return False
        if habits.credit < _CREDIT_MAX:
            habits.credit += 1
        opaque, queue_offset, log_offset, key = alike
        header, flag = shape.header, shape.flag
        if (
            flag & Flag.REPLY
            or header.commit_or_rollback != _COMMIT
            or header.from_transaction_check
            or not _are_numbers(queue_offset, log_offset)
        ):
            return False
        asked = None
        if not flag & Flag.ONE_WAY:
            number = int.from_bytes(opaque, "big", signed=True)
            asked = self._asked(peer, number, flag, now_ms, is_binary=True)
        is_put = self._puts.commit_half(
            header.producer_group,
            key,
            queue_offset=int(queue_offset),
            log_offset=int(log_offset),
            asked=asked,
        )
        self._ends_count += is_put
        return is_put

    def _asked(
        self, peer: Peer, opaque: int, flag: int, now_ms: int, *, is_binary: bool
    ) -> Question:
        """An END whose sender wants to hear of it."""
        code = Request.END_TRANSACTION
        command = Command(code=code, opaque=opaque, flag=flag, is_binary=is_binary)
        return Asked(peer, self._serving.row(code), command, None, now_ms)

    def _end_in_json(self, peer: Peer, data: bytes, at: int, end: int, now_ms: int) -> bool:
        found = read_json_end(data[at:end])
        if found is None or found.code != Request.END_TRANSACTION or found.flag & Flag.REPLY:
            return False
        ext = found.extFields
        if (
            ext.commit_or_rollback != str(_COMMIT)
            or ext.from_transaction_check != "false"
            or ext.escrow_id
            or ext.escrow_count
            or end - at > _JSON_REST_MAX
            or not _is_long(ext.tran_state_table_offset)
            or not _is_long(ext.commit_log_offset)
            or not ext.transaction_id.isascii()
        ):
            return False
        asked = None
        if not found.flag & Flag.ONE_WAY:
            asked = self._asked(peer, found.opaque, found.flag, now_ms, is_binary=False)
        is_put = self._puts.commit_half(
            ext.producer_group,
            ext.transaction_id.encode(),
            queue_offset=int(ext.tran_state_table_offset),
            log_offset=int(ext.commit_log_offset),
            asked=asked,
        )
        self._ends_count += is_put
        return is_put


# Numbers as clients write them: other forms mean the same, or nothing, which the general way knows.


def _are_numbers(one: bytes, other: bytes) -> bool:
    return (
        one.isdigit()
        and other.isdigit()
        and len(one) <= _LONG_DIGITS_MAX
        and len(other) <= _LONG_DIGITS_MAX
        and (one[0] != 48 or len(one) == 1)
        and (other[0] != 48 or len(other) == 1)
    )


def _is_int(text: str) -> bool:
    return len(text) <= _DIGITS_MAX and _is_long(text)


def _is_long(text: str) -> bool:
    return (
        len(text) <= _LONG_DIGITS_MAX
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
    )
