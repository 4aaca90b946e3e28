"""The fast path: serves plain messages, batches, halves and ENDs of producers, from the bytes of
their frames to the bytes of the replies, without creating an object for each request.

The general path (remoting, serving, on_send, on_end) defines what these requests mean. A request is
served here only if its result is the same as there. Each request takes three steps:

1. Match: it has a shape that its connection has shown before (codec/request_shapes).
2. Admit: the rules are kept for its queue, its group and its properties (broker/fast/fast_puts);
   where peers must sign, its account may do this (broker/fast/publish_grants); the half that an END
   names is pending (broker/fast/fast_ends).
3. Lay out: the native lane writes the records and replies of all consecutive requests at once.

From the first request that it cannot serve, it may learn a shape, a queue or names of properties;
then it tries the request once more. A frame in any doubt takes the general path, after the frames
before it were served here. A test compares replies, files and metrics of both paths byte for byte.

No request is answered, counted or visible before all of them are in the log. If writing fails,
nothing has changed, and all of them take the general path, which reports the error."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from typing import Final

from escrowmq.base.answer import SendAnswer
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Flag, Request
from escrowmq.base.command import Command
from escrowmq.broker.answers.answer_frames import AnswerFrames
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.fast.fast_puts import FastPuts
from escrowmq.broker.fast.known_requests import (
    CREDIT_MAX,
    ENDS,
    KnownRequests,
    binary_request_kind,
    json_request_kind,
)
from escrowmq.broker.fast.publish_grants import PublishGrants
from escrowmq.broker.identity import Identity
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_server import RequestServer
from escrowmq.broker.sends.shedding import LoadShedding
from escrowmq.broker.sends.wanted_answers import may_hold_unwaiting_send
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.headers import EndTransactionHeader
from escrowmq.codec.ids import offset_id
from escrowmq.codec.request_shapes import END, RequestKind, RequestShape
from escrowmq.lane.native import LaneShape, RequestsLane, requests_lane
from escrowmq.store.log_ends import LogEnds

_log = logging.getLogger(__name__)

_FRONT: Final = struct.Struct(">II").unpack_from
"""Unpacks the beginning of a frame: its size, and its encoding with the header's size."""

_FRONT_SIZE: Final = 10
_IPV4_SIZE: Final = 8
_ADMITTED_MAX: Final = 64
_ALL: Final = 1 << 31


class FastPath:
    """Serves requests of known shapes from the bytes of a connection."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        frames: AnswerFrames,
        identity: Identity,
        moment: InputTime,
        shedding: LoadShedding,
        latency: RequestLatency,
        output: Output,
        serving: RequestServer,
        puts: FastPuts,
        grants: PublishGrants,
        run_answers: BatchedReplies,
        ends: LogEnds,
    ) -> None:
        self._settings = settings
        self._frames = frames
        self._host = identity.packed
        self._is_ipv4 = len(identity.packed) == _IPV4_SIZE
        self._moment = moment
        self._shedding = shedding
        self._latency = latency
        self._output = output
        self._serving = serving
        self._puts = puts
        self._grants = grants
        self._run_answers = run_answers
        self._ends = ends
        self.is_cut = False
        """Whether the last run stopped before an END. A producer with one thread sends the END
        together with its next half, whose answer need not wait for it. Measured: 1.1 to 1.2 times
        as many transactions of one thread."""
        self._may_not_wait = False  # whether a sender may not want to wait
        self._must_sign = False
        """Whether the peer of this run must sign its requests."""
        self.lane: RequestsLane | None = requests_lane
        """The native lane; without it, everything takes the general path."""
        self._shut_ms = -1
        self._replies: list[bytes] = []
        self._sends_count = self._one_way_count = 0
        """The numbers of sends, and of those that are one-way."""
        self._batches_counts: Counter[tuple[int, int]] = Counter()
        """The number of batches, by request code and one-way flag."""
        self._ends_count = 0
        self.served_count = 0
        """Requests that were served here."""

    def serve(
        self,
        peer: Peer,
        known: KnownRequests,
        reader: FrameReader,
        data: bytes,
        at: int,
        now_ms: int,
    ) -> int:
        """Serve frames from a position on. Stop before the first that the fast path does not serve,
        or that must be served separately (`is_cut`); return its position."""
        self.is_cut = False
        self._must_sign = self._serving.is_judging
        if not self._is_ready(peer, now_ms) or not self._puts.begin(now_ms):
            return at
        if self._must_sign and not self._grants.begin_run(peer, known.grants, now_ms):
            return at
        self._may_not_wait = self._ends.holds_answers and may_hold_unwaiting_send(data)
        try:
            end = self._put_requests(peer, known, data, at, reader.frame_size_max)
        except Exception:  # noqa: BLE001 - nothing has happened yet, and the general path can tell
            _log.exception("requests of %s take the general path", peer.address)
            self._shut_ms, end = now_ms, at
        is_all = end == len(data)
        if is_all and self._ends_count:
            self._puts.seal_ends(now_ms)
        if end > at and self._puts.write():
            if self._replies:
                self._reply(peer, now_ms, is_all=is_all or self.is_cut)
            self._puts.apply_effects(peer, now_ms)
            self._count_served(reader)
        elif end > at:
            self._shut_ms, end = now_ms, at
        self._puts.clear()
        self._replies.clear()
        self._batches_counts.clear()
        self._sends_count = self._one_way_count = self._ends_count = 0
        if self._must_sign:
            self._grants.end_run(is_stored=end > at)
        return end

    def _reply(self, peer: Peer, now_ms: int, *, is_all: bool) -> None:
        """Answer the requests of the run, whose records are in the log now. With `is_all`, write
        the replies before further work is done. Measured: 0.85 of a half's round trip."""
        if self._ends.holds_answers:
            self._hold_replies(peer, now_ms)
            return
        replies, self._replies = self._replies, []
        if is_all:
            self._output.write_now(peer.id, replies)
        else:
            self._output.send(peer.id, *replies)

    def _count_served(self, reader: FrameReader) -> None:
        """Count the served requests, and answer the ENDs."""
        at_once, waits = self._latency.immediate_counts, self._ends.holds_answers
        count = self._ends_count + self._sends_count + self._one_way_count
        if self._sends_count and not waits:
            at_once[Request.SEND_MESSAGE_V2, 0, 0] += self._sends_count
        if self._one_way_count:
            at_once[Request.SEND_MESSAGE_V2, 0, Flag.ONE_WAY] += self._one_way_count
        for (code, is_one_way), batches_count in self._batches_counts.items():
            if is_one_way or not waits:
                at_once[code, 0, is_one_way] += batches_count
            count += batches_count
        reader.count += count
        self.served_count += count
        if self._ends_count and not self._puts.answer_ends():
            self._serving.request_finish()  # the op record is not appended yet

    def _hold_replies(self, peer: Peer, now_ms: int) -> None:
        """Hold the replies until their records may be acknowledged."""
        replies, self._replies = self._replies, []
        counts = Counter(
            {code: count for (code, one_way), count in self._batches_counts.items() if not one_way}
        )
        if self._sends_count:
            counts[Request.SEND_MESSAGE_V2] += self._sends_count
        end = self._puts.log_end
        self._run_answers.hold(peer, replies, counts, now_ms=now_ms, log_end=end)

    def accepts_plain_messages(self, peer: Peer, now_ms: int) -> bool:
        """Whether plain messages of a peer may be stored and answered without further checks."""
        is_more = self._ends.holds_answers or self._serving.is_judging
        return not is_more and self._puts.are_allowed and self._is_ready(peer, now_ms)

    def _is_ready(self, peer: Peer, now_ms: int) -> bool:
        # Nearly always there is nothing to check: the input did not wait, and no limit is set.
        may_be_shut = self._moment.waited_ms or self._settings.accepts_sends_from_ms
        return self.lane is not None and not (
            (may_be_shut and not self._shedding.accepts_all(now_ms))
            or now_ms == self._shut_ms
            or len(peer.packed) != _IPV4_SIZE
            or not self._is_ipv4
        )

    def _stops_before_end(self, begin: int, data: bytes, at: int) -> bool:
        """Whether to stop the run before the last request of an input: before an END that follows a
        single message, if no answer waits for the disk."""
        is_answer_ready = self._sends_count == 1 and not (self._ends_count or self._batches_counts)
        if begin == 0 and is_answer_ready and not self._ends.holds_answers:
            self.is_cut = data.startswith(ENDS, at + 8)
        return self.is_cut

    def _put_requests(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        """Lay out the records of the complete requests in `data`, from a position on. Return the
        position of the first request that needs the general path."""
        begin, left = at, len(data) - at
        while left >= _FRONT_SIZE:
            size, word = _FRONT(data, at)
            header_end, end = at + 8 + (word & 0xFFFFFF), at + 4 + size
            if size + 4 > left or header_end > end or size + 4 > size_max:
                break
            if at and size + 4 == left and self._stops_before_end(begin, data, at):
                break
            kind = binary_request_kind(data[at + 8 : at + 10]) or json_request_kind(data, at)
            if kind is None or (kind is END and self._must_sign):
                # The account must be judged: a half that was stored before accounts were introduced
                # has no account's mark, but still belongs to its topic and group.
                break
            put = self._put_ends if kind is END else self._put_sends
            reached = put(peer, known, data, at, size_max)
            if reached == at and self._learn_from(known, kind, data, at, header_end, end):
                reached = put(peer, known, data, at, size_max)
            if reached == at:
                if kind is END:
                    known.backoff.record_attempt(has_paid=False)
                break
            left -= reached - at
            at = reached
        return at

    def _learn_from(
        self,
        known: KnownRequests,
        kind: RequestKind,
        data: bytes,
        at: int,
        header_end: int,
        end: int,
    ) -> bool:
        """Learn from a request that could not be served. Return whether to try it once more."""
        one = known.learn_shape(data, at, header_end, kind)
        if one is None:
            return False
        header = one.header
        if isinstance(header, EndTransactionHeader):
            return self._puts.learn_end(header.tran_state_table_offset, header.commit_log_offset)
        is_batch = one.command.code == Request.SEND_BATCH_MESSAGE
        entries = data[header_end:end] if is_batch else None
        properties = header.properties.encode()
        return self._puts.learn_send(header.topic, header.queue_id, properties, entries=entries)

    # -- sends -------------------------------------------------------------------------------------

    def _put_sends(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        """Put sends from a position on. Return the position of the first that was not put."""
        shapes, count_max = known.sends.lane_shapes, _ALL
        assert self.lane is not None, "the fast path is ready"
        if not shapes or self._may_not_wait or (known.wants_ids and not self._puts.may_sign):
            return at
        if self._must_sign:
            count_max = self._count_authorized(
                self.lane, known.sends.shapes, shapes, data, at, size_max
            )
        lay_out = self.lane.lay_out_sends
        put = self._puts.put_sends(lay_out, peer, shapes, data, at, size_max, count_max)
        if self._must_sign:
            put_count = put[2] + len(put[4]) if put else 0
            for _ in range(count_max - put_count):
                self._grants.uncount_last()
        if put is None:
            return at
        end, replies, count, one_way_count, batches, asked, _ = put
        if known.credit < CREDIT_MAX:
            known.add_credit(count + len(batches))
        if replies:
            self._replies.append(replies)
        if asked is not None:
            self._answer_with_signed_id(*asked)
        self._one_way_count += one_way_count
        self._sends_count += count - one_way_count
        for *_, is_one_way in batches:
            self._batches_counts[Request.SEND_BATCH_MESSAGE, is_one_way * Flag.ONE_WAY] += 1
        return end

    def _count_authorized(
        self,
        lane: RequestsLane,
        known: list[RequestShape],
        shapes: list[LaneShape],
        data: bytes,
        at: int,
        size_max: int,
    ) -> int:
        """Return how many of the signed sends from a position on may be put."""
        signed = lane.find_signed_sends(data, at, size_max, shapes, _ADMITTED_MAX)
        for nth, parts in enumerate(signed):
            if not self._grants.admits(known[parts[0]], parts):
                return nth
        return len(signed)

    def _answer_with_signed_id(self, opaque: bytes, is_json: bool) -> None:
        """Answer the last half with its signed id."""
        half, signed_id = self._puts.sign_last_half()
        command = Command(
            code=Request.SEND_MESSAGE_V2,
            opaque=int(opaque) if is_json else int.from_bytes(opaque, "big", signed=True),
            is_binary=not is_json,
        )
        sent = SendAnswer(
            message_id=offset_id(self._host, half.log_offset),
            queue_id=half.queue_id,
            queue_offset=half.queue_offset,
            transaction_id=half.key.decode(),
            ext={"escrowId": signed_id},
        )
        self._replies += self._frames.frames_of(command, sent)

    # -- ends --------------------------------------------------------------------------------------

    def _put_ends(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        """End transactions for a producer's own commits and rollbacks from a position on. Return
        the position of the first request that was not served."""
        shapes = known.ends.lane_shapes
        assert self.lane is not None, "the fast path is ready"
        put = self._puts.put_ends(self.lane, peer, shapes, data, at, size_max) if shapes else None
        if put is None:
            return at
        known.backoff.record_attempt(has_paid=put.has_paid)
        if known.credit < CREDIT_MAX:
            known.add_credit(put.ends_count)
        self._ends_count += put.ends_count
        return put.end
