"""The fast path: plain messages of ordinary producers, their batches, halves and ends, from the
bytes of their frames to those of the replies, without a value for each step in between.

The general path (remoting, serving, on_send, on_end) defines what these requests mean. A request is
served here only if it means the same there, whatever else is true: `is_open` checks the broker and
the connection, codec/request_shapes the request and the names of its properties,
broker/fast/short_puts the topic, the half and the values. A frame in any doubt takes the general
path, after those before it were served here. A test compares the replies, files and figures of both
paths byte for byte.

Nothing is answered, counted or visible before everything is in the log. If that fails, nothing has
happened, and everything takes the general path, which says why."""

from __future__ import annotations

import logging
import struct
from collections import Counter
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Flag, Request
from escrowmq.broker.answers.request_times import Latency
from escrowmq.broker.fast.batched_replies import BatchedReplies
from escrowmq.broker.fast.known_requests import (
    BINARY_BATCH,
    CREDIT_MAX,
    ENDS,
    JSON_END,
    JSON_SENDS,
    SENDS,
    KnownRequests,
)
from escrowmq.broker.fast.publish_grants import PublishGrants
from escrowmq.broker.fast.short_batches import Entries
from escrowmq.broker.fast.short_puts import ShortPuts, Target
from escrowmq.broker.fast.signed_sends import lets_in, lets_in_json
from escrowmq.broker.identity import Identity
from escrowmq.broker.input_time import InputTime
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.serving import Serving
from escrowmq.broker.sends.send_rules import WAITS_NOT, may_not_wait
from escrowmq.broker.sends.shedding import Shedding
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.request_shapes import (
    are_plain_numbers,
    read_json_end,
    read_json_send,
)  # fmt: skip
from escrowmq.lane.native import (
    EndsLane,
    LayOutBatch,
    LayOutSends,
    ends_lane,
    lay_out_batch,
    lay_out_sends,
)
from escrowmq.store.log_ends import LogEnds
from escrowmq.store.run import Common
from escrowmq.txn.end_rules import VERDICTS, plain_verdict
from escrowmq.txn.state import Verdict

_log = logging.getLogger(__name__)

_FRONT: Final = struct.Struct(">IIh").unpack_from
"""Frame size, encoding and header size, code (of a binary header)."""

_FRONT_SIZE: Final = 10
_JSON_REST_MAX: Final = 2048
"""The longest header in JSON without the properties: a longer one has unexpected fields."""

_IPV4_SIZE: Final = 8
_WAITS_NOT: Final = WAITS_NOT.encode()
_IN_JSON: Final = int.from_bytes(b'{"', "big")
"""What a JSON header has at the position of a binary header's code."""

_VERDICTS: Final = {str(verdict): verdict for verdict in VERDICTS}
"""Commit and rollback as they are written in JSON."""


class FastPath:
    """Serves what it can of a connection's bytes."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        identity: Identity,
        moment: InputTime,
        shedding: Shedding,
        latency: Latency,
        output: Output,
        serving: Serving,
        puts: ShortPuts,
        grants: PublishGrants,
        run_answers: BatchedReplies,
        ends: LogEnds,
    ) -> None:
        self._settings = settings
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
        """Whether the last run stopped before an END. A producer with one thread sends that
        together with its next half, whose answer need not wait for it. Measured: 1.1 to 1.2 times
        as many transactions of one thread."""
        self._may_not_wait = False  # a sender of this run, for disk or replicas
        self._is_held = False
        """Whether the replies of this run must wait for disk or replicas."""
        self._is_judged = False
        """Whether the peer of this run must sign its requests."""
        self.lay_out: LayOutSends | None = lay_out_sends
        self.lay_out_batch: LayOutBatch | None = lay_out_batch
        self.ends_lane: EndsLane | None = ends_lane
        """The native lane for ENDs; None: each request is served by itself."""
        self._shut_ms = -1
        self._replies: list[bytes] = []
        self._sends_count = self._one_way_count = 0
        """The second of those whose senders want no answer."""
        self._batches_counts: Counter[tuple[int, int]] = Counter()
        """The number of batches, by request code."""
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
        """Serve frames from a position on, up to one that is not served here, or must be served by
        itself (`is_cut`). Returns its position."""
        self.is_cut = False
        self._is_judged = self._serving.is_judging
        if not self._is_ready(peer, now_ms) or not self._puts.begin(now_ms):
            return at
        if self._is_judged and not self._grants.begin(peer, known.grants, now_ms):
            return at
        self._may_not_wait = self._ends.holds_answers and may_not_wait(data)
        try:
            end = self._put_frames(peer, known, data, at, reader.frame_size_max)
        except Exception:  # noqa: BLE001 - nothing has happened yet, and the general path can tell
            _log.exception("requests of %s go the general path", peer.address)
            self._shut_ms, end = now_ms, at
        is_all = end == len(data)
        if is_all and self._ends_count:
            self._puts.seal_ends(now_ms)
        if end > at and self._puts.write():
            ends = self._ends
            self._is_held = ends.holds_answers and self._puts.log_end > ends.answerable_end
            if self._replies:
                self._reply(peer, now_ms, is_all=(is_all or self.is_cut) and at == 0)
            self._puts.apply_effects(peer, now_ms)
            self._tell(reader)
        elif end > at:
            self._shut_ms, end = now_ms, at
        self._puts.forget()
        self._replies.clear()
        self._batches_counts.clear()
        self._sends_count = self._one_way_count = self._ends_count = 0
        if self._is_judged:
            self._grants.end(is_stored=end > at)
        return end

    def _reply(self, peer: Peer, now_ms: int, *, is_all: bool) -> None:
        """Everything is in the log: answer it. A sender who gets no other answer need not wait for
        the work that follows. Measured: 0.85 of a half's round trip."""
        if self._is_held:
            self._keep(peer, now_ms)
            return
        replies, self._replies = self._replies, []
        if is_all:
            self._output.write_now(peer.id, replies)
        else:
            self._output.send(peer.id, *replies)

    def _tell(self, reader: FrameReader) -> None:
        """The work that follows is done: answer the rest."""
        at_once, waits = self._latency.at_once, self._is_held
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
        if self._ends_count and not self._puts.tell_ends():
            self._serving.note_served()  # they still have to be sealed

    def _keep(self, peer: Peer, now_ms: int) -> None:
        """Keep the replies until all of them may be sent."""
        replies, self._replies = self._replies, []
        counts = Counter(
            {code: count for (code, one_way), count in self._batches_counts.items() if not one_way}
        )
        if self._sends_count:
            counts[Request.SEND_MESSAGE_V2] += self._sends_count
        end = self._puts.log_end
        self._run_answers.keep(peer, replies, counts, now_ms=now_ms, log_end=end)

    def is_open(self, peer: Peer, now_ms: int) -> bool:
        """Whether plain messages of a peer may be stored and answered without further checks."""
        is_more = self._ends.holds_answers or self._serving.is_judging
        return not is_more and self._puts.are_allowed and self._is_ready(peer, now_ms)

    def _is_ready(self, peer: Peer, now_ms: int) -> bool:
        # Nearly always there is nothing to check: the input did not wait, and no limit is set.
        may_be_shut = self._moment.waited_ms or self._settings.accepts_sends_from_ms
        return not (
            (may_be_shut and not self._shedding.is_open(now_ms))
            or now_ms == self._shut_ms
            or len(peer.packed) != _IPV4_SIZE
            or not self._is_ipv4
        )

    def _cuts(self, begin: int, data: bytes, at: int) -> bool:
        """Whether a run stops before the last request of an input: that is an END, only a message
        precedes it, and its sender waits, but not for the disk."""
        is_answer_ready = self._sends_count == 1 and not (self._ends_count or self._batches_counts)
        if begin == 0 and is_answer_ready and not self._ends.holds_answers:
            self.is_cut = data.startswith(ENDS, at + 8)
        return self.is_cut

    def _put_frames(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        """Put whole frames from a position on. Returns the position of the first that cannot be
        put."""
        begin, left = at, len(data) - at
        while left >= _FRONT_SIZE:
            size, word, code = _FRONT(data, at)
            header_end, end = at + 8 + (word & 0xFFFFFF), at + 4 + size
            if size + 4 > left or header_end > end or size + 4 > size_max:
                break
            if at and size + 4 == left and self._cuts(begin, data, at):
                break
            reached = self._serve_by_lane(code, peer, known, data, at, size_max)
            if reached > at:
                left -= reached - at
                at = reached
                continue
            is_put = False
            if word >> 24 == 1:
                if code in SENDS:
                    is_put = self._send(peer, known, data, at, header_end, end)
                elif code == Request.END_TRANSACTION and self._may_end(header_end, end):
                    is_put = self._end(known, data, at, end)
            elif word >> 24 == 0:
                if data.startswith(JSON_SENDS, at + 8):
                    is_put = self._send_in_json(peer, known, data, at + 8, header_end, end)
                    known.note_known(is_put)
                elif data.startswith(JSON_END, at + 8) and self._may_end(header_end, end):
                    is_put = self._end_in_json(known, data, at + 8, end)
            if not is_put:
                break
            at = end
            left -= 4 + size
        return at

    # -- sends -------------------------------------------------------------------------------------

    def _serve_by_lane(
        self, code: int, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        """Put requests from a position on with the native lane. Returns where it stopped."""
        if code == Request.END_TRANSACTION:
            return self._end_by_lane(peer, known, data, at, size_max)
        is_send = code in SENDS or (code == _IN_JSON and data.startswith(JSON_SENDS, at + 8))
        is_known = is_send and known.sends_for_lane
        if not is_known or self.lay_out is None or self._is_judged or self._may_not_wait:
            return at
        put = self._puts.put_by_lane(self.lay_out, peer, known.sends_for_lane, data, at, size_max)
        if put is None:
            return at
        if known.credit < CREDIT_MAX:
            known.note_known(put.puts_count + len(put.batches))
        if put.replies:
            self._replies.append(put.replies)
        self._one_way_count += put.one_way_count
        self._sends_count += put.puts_count - put.one_way_count
        for *_, is_one_way in put.batches:
            self._batches_counts[Request.SEND_BATCH_MESSAGE, is_one_way * Flag.ONE_WAY] += 1
        return put.end

    def _send(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, header_end: int, end: int
    ) -> bool:
        for shape in known.sends:
            alike = shape.match(data, at, header_end)
            if alike is not None:
                break
        else:
            known.learn_send(data, at, header_end)
            return False
        if known.credit < CREDIT_MAX:
            known.note_known(1)
        opaque, queue, born, properties = alike
        header, flag = shape.header, shape.flag
        waits_not = self._may_not_wait and _WAITS_NOT in properties
        if waits_not or flag & Flag.REPLY or not are_plain_numbers(queue, born):
            return False
        target = self._puts.target(header.topic, int(queue))
        if target is None or (
            self._is_judged and not lets_in(self._grants, shape, alike, data, at, header_end, end)
        ):
            return False
        if header.batch or data.startswith(BINARY_BATCH, at + 8):
            common = Common(header.sys_flag, int(born), peer.packed, header.reconsume_times)
            code = int.from_bytes(data[at + 8 : at + 10], "big")
            entries = data, header_end, end
            return self._batch(peer, target, opaque, code, flag, properties, entries, common)
        found = self._puts.send(
            peer, target, properties, data[header_end:end],
            header.flag, header.sys_flag, int(born), header.reconsume_times,
            wants_id=shape.wants_id,
        )  # fmt: skip
        if found is None:
            return self._leave()
        if not flag & Flag.ONE_WAY:
            self._replies.append(target.replies.binary(opaque, *found))
        self._count_send(flag)
        return True

    def _count_send(self, flag: int) -> None:
        if flag & Flag.ONE_WAY:
            self._one_way_count += 1
        else:
            self._sends_count += 1

    def _send_in_json(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, header_end: int, end: int
    ) -> bool:
        if self.lay_out is not None and not self._is_judged:
            known.learn_json_send(data, at, header_end)
        found = read_json_send(data[at:header_end])
        if found is None or found.code not in SENDS or found.flag & Flag.REPLY:
            return False
        ext = found.extFields
        properties, numbers = ext.i, (ext.e, ext.f, ext.h, ext.j)
        if (
            header_end - at - len(properties) > _JSON_REST_MAX
            or not properties.isascii()
            or (self._may_not_wait and WAITS_NOT in properties)
        ):
            return False
        queue_id, sys_flag, flag, reconsume_times = map(int, numbers)
        target = self._puts.target(ext.b, queue_id)
        if target is None or (
            self._is_judged and not lets_in_json(self._grants, found, data, at, header_end, end)
        ):
            return False
        if ext.m == "true" or found.code == Request.SEND_BATCH_MESSAGE:
            common = Common(sys_flag, int(ext.g), peer.packed, reconsume_times)
            said, entries = properties.encode(), (data, header_end, end)
            return self._batch(
                peer, target, found.opaque, found.code, found.flag, said, entries, common
            )
        put = self._puts.send(
            peer, target, properties.encode(), data[header_end:end],
            flag, sys_flag, int(ext.g), reconsume_times, wants_id=ext.escrowWantsId == "true",
        )  # fmt: skip
        if put is None:
            return self._leave()
        if not found.flag & Flag.ONE_WAY:
            self._replies.append(target.replies.json(found.opaque, *put))
        self._count_send(found.flag)
        return True

    def _leave(self) -> bool:
        """The current request is not put."""
        if self._is_judged:
            self._grants.take_back()
        return False

    def _batch(
        self,
        peer: Peer,
        target: Target,
        opaque: bytes | int,
        code: int,
        flag: int,
        properties: bytes,
        entries: Entries,
        common: Common,
    ) -> bool:
        """Put a batch, and answer with the places of its messages."""
        put = self._puts.batch(self.lay_out_batch, peer, target, properties, entries, common)
        if put is None:
            return self._leave()
        if not flag & Flag.ONE_WAY:
            self._replies.append(target.replies.of_batch(opaque, *put))
        self._batches_counts[code, flag & Flag.ONE_WAY] += 1
        return True

    # -- ends --------------------------------------------------------------------------------------

    def _may_end(self, header_end: int, end: int) -> bool:
        """Whether an END, which has no body, may be served here at all. A half from before accounts
        were introduced has no mark of one, but still belongs to its topic and group."""
        return header_end == end and not self._is_judged

    def _end_by_lane(
        self, peer: Peer, known: KnownRequests, data: bytes, at: int, size_max: int
    ) -> int:
        shapes = known.ends_for_lane
        if not shapes or self.ends_lane is None or self._is_judged:
            return at
        put = self._puts.end_by_lane(self.ends_lane, peer, shapes, data, at, size_max)
        if put is None:
            return at
        if known.credit < CREDIT_MAX:
            known.note_known(put.ends_count)
        known.backoff.note(has_paid=True)
        self._ends_count += put.ends_count
        return put.end

    def _end(self, known: KnownRequests, data: bytes, at: int, end: int) -> bool:
        """Serve a producer's own commit or rollback; any other END takes the general path."""
        for shape in known.ends:
            alike = shape.match(data, at, end)
            if alike is not None:
                break
        else:
            known.learn_end(data, at, end)
            return False
        if known.credit < CREDIT_MAX:
            known.note_known(1)
        opaque, queue_offset, log_offset, key = alike
        header, flag = shape.header, shape.flag
        state = plain_verdict(
            header.commit_or_rollback, is_from_check=header.from_transaction_check
        )
        if flag & Flag.REPLY or state is None or not are_plain_numbers(queue_offset, log_offset):
            return False
        is_put = self._puts.end_half(
            header.producer_group,
            key,
            queue_offset=int(queue_offset),
            log_offset=int(log_offset),
            state=state,
            number=None if flag & Flag.ONE_WAY else opaque,
        )
        known.backoff.note(has_paid=is_put)
        self._ends_count += is_put
        return is_put

    def _end_in_json(self, known: KnownRequests, data: bytes, at: int, end: int) -> bool:
        found = read_json_end(data[at:end])
        if found is None or found.code != Request.END_TRANSACTION or found.flag & Flag.REPLY:
            return False
        ext = found.extFields
        state = plain_verdict(
            _VERDICTS.get(ext.commit_or_rollback, Verdict.UNKNOWN),
            is_from_check=ext.from_transaction_check != "false",
        )
        if (
            state is None
            or ext.escrow_id
            or ext.escrow_count
            or end - at > _JSON_REST_MAX
            or not ext.transaction_id.isascii()
        ):
            return False
        is_put = self._puts.end_half(
            ext.producer_group,
            ext.transaction_id.encode(),
            queue_offset=int(ext.tran_state_table_offset),
            log_offset=int(ext.commit_log_offset),
            state=state,
            number=None if found.flag & Flag.ONE_WAY else found.opaque,
        )
        known.backoff.note(has_paid=is_put)
        self._ends_count += is_put
        return is_put
