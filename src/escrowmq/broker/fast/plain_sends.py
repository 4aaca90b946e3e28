"""Writes plain messages and halves of guests together. This does for guests what
broker/fast/fast_path does for connections.

A front passes messages as values, one after the other. All of them are written, and their senders
answered, before the front's next request is served, or at the end of its turn. The general path
(on_send) defines what a message means. A message that is not plain, or cannot be written this way
now, must be sent as a request; so must all of them if the log does not accept them. A test compares
the replies, files and metrics of both paths."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import RUN_SIZE_MAX
from escrowmq.base.guests import MessageByValue, OnPut
from escrowmq.base.message import SysFlag
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.fast.fast_path import FastPath
from escrowmq.broker.fast.fast_puts import FastPuts
from escrowmq.broker.fast.known_requests import KnownRequests
from escrowmq.broker.fast.lane_input import lane_shape
from escrowmq.broker.peer import Peer
from escrowmq.codec.command import encode_command
from escrowmq.codec.request_shapes import (
    BORN,
    OPAQUE,
    PROPERTIES,
    QUEUE,
    SEND,
    RequestShape,
    learn_shape,
)
from escrowmq.lane.native import LaneShape

_log = logging.getLogger(__name__)

_NOT_PUT: Final = -1
_NO_OPAQUE: Final = bytes(4)
_SHAPES_MAX: Final = 1_024


class PlainSends:
    """Puts plain messages and halves of one front's turn, to be written together."""

    def __init__(
        self,
        latency: RequestLatency,
        fast_path: FastPath,
        puts: FastPuts,
    ) -> None:
        self._latency = latency
        self._fast_path = fast_path
        self._puts = puts
        self._peer: Peer | None = None
        """The sender of the last message; None when nothing waits to be written."""
        self._put_messages: list[tuple[OnPut, int, str]] = []
        """For each put message: its callback, its queue offset, and its transaction's signed id."""
        self._known = KnownRequests()
        self._shapes: dict[tuple[str, bool], tuple[RequestShape, LaneShape]] = {}
        """By topic, and whether the messages are halves."""
        self._size = 0
        self._has_halves = False
        self._shut_ms = -1
        self.count = 0
        """The number of messages stored this way."""

    def put(self, peer: Peer, message: MessageByValue, on_put: OnPut, now_ms: int) -> bool:
        """Put a message; False when it must be sent as a request."""
        if peer is not self._peer:
            # Halves of a run are entered as one client's; checks go to that client first.
            if self._has_halves:
                self.finish(now_ms)
            if not self._begin_run(peer, now_ms):
                return False
        try:
            placed = self._put_in_run(peer, message, now_ms)
        except Exception:  # noqa: BLE001 - nothing is written yet, and the general path can tell
            _log.exception("messages of %s take the general path", peer.address)
            self._puts.clear()
            self._report_not_put(now_ms)
            return False
        if placed is None:
            return False
        self._put_messages.append((on_put, *placed))
        self._size += len(message.body)
        self._has_halves |= message.is_half
        if self._size > RUN_SIZE_MAX:
            self.finish(now_ms)
        return True

    def _begin_run(self, peer: Peer, now_ms: int) -> bool:
        """Whether messages of a peer may be stored without further checks. Begins a run if so."""
        if now_ms == self._shut_ms or not self._fast_path.accepts_plain_messages(peer, now_ms):
            return False
        if self._peer is None:
            self._puts.begin(now_ms)
        self._peer = peer
        return True

    def _put_in_run(
        self, peer: Peer, message: MessageByValue, now_ms: int
    ) -> tuple[int, str] | None:
        """Put a message into the run. Return its queue offset and its transaction's signed id; None
        if it cannot be put."""
        lane, is_half = self._fast_path.lane, message.is_half
        assert lane is not None, "the fast path is open"
        if is_half and not self._puts.may_sign:
            return None
        alike, shape = self._shape_for(message.topic, is_half=is_half)
        properties = message.properties.encode()
        values = {
            OPAQUE: _NO_OPAQUE, QUEUE: b"%d" % message.queue_id, BORN: b"%d" % message.born_ms,
            PROPERTIES: properties,
        }  # fmt: skip
        frame = alike.frame(values, message.body)
        for _ in range(2):
            put = self._puts.put_sends(lane.lay_out_sends, peer, [shape], frame, 0, len(frame))
            if put is not None:
                self._known.add_credit(1)
                return put[-1].next_offset - 1, self._puts.sign_last_half()[1] if is_half else ""
            place = message.topic, message.queue_id
            may_learn = self._known.pay_for_learning()
            if not (may_learn and self._puts.learn_send(*place, properties)):
                break
        return None

    def _shape_for(self, topic: str, *, is_half: bool) -> tuple[RequestShape, LaneShape]:
        """Return the shape of messages, or halves, for a topic: they are put as if they were
        one-way requests of that shape."""
        found = self._shapes.get((topic, is_half))
        if found is not None:
            return found
        sys_flag = SysFlag.PREPARED if is_half else 0
        ext = {"b": topic, "e": "0", "f": str(int(sys_flag)), "g": "0", "i": "-"}
        command = Command(
            code=Request.SEND_MESSAGE_V2, opaque=0, flag=Flag.ONE_WAY, ext=ext, is_binary=True
        )
        frame = encode_command(command)
        alike = learn_shape(frame, 0, len(frame), SEND)
        shape = None if alike is None else lane_shape(alike)
        assert alike is not None, "it was written just now"
        assert shape is not None, "it is a plain send"
        if len(self._shapes) >= _SHAPES_MAX:
            self._shapes.clear()
        self._shapes[topic, is_half] = alike, shape
        return alike, shape

    def finish(self, now_ms: int) -> None:
        """Write the messages of the run, and answer their senders."""
        peer = self._peer
        if peer is None:
            return
        is_put = bool(self._put_messages) and self._puts.write()
        if is_put:
            self._puts.apply_effects(peer, now_ms)
        self._puts.clear()
        if not self._put_messages:
            self._clear_run()
        elif is_put:
            stored = self._clear_run()
            self._latency.immediate_counts[Request.SEND_MESSAGE_V2, 0, 0] += len(stored)
            self.count += len(stored)
            for on_put, place, transaction_id in stored:
                on_put(place, transaction_id)
        else:
            self._report_not_put(now_ms)

    def _report_not_put(self, now_ms: int) -> None:
        """Tell each sender to send its message as a request, because nothing was written."""
        self._shut_ms = now_ms
        for on_put, _, _ in self._clear_run():
            on_put(_NOT_PUT, "")

    def _clear_run(self) -> list[tuple[OnPut, int, str]]:
        stored, self._put_messages = self._put_messages, []
        self._peer, self._size, self._has_halves = None, 0, False
        return stored
