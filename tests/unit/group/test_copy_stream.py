"""What a master sends to a copy, and how much at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import RemoteProtocolError
from escrowmq.group import copy_stream
from escrowmq.group.copy_stream import CopyStream, MasterEpoch
from escrowmq.group.copying import CopyConnection
from escrowmq.group.frames import (
    FrameReader,
    GroupFrameKind,
    Hello,
    TopicDeletion,
    compute_proof,
    decode_log,
    encode_struct,
    encode_table,
)
from escrowmq.group.tables import QUEUE_ENDS
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk


class CopyEffects:
    """What a copy does beside its log: nothing here."""

    def adopt_epoch(self, epoch: int, history: tuple[tuple[int, int], ...]) -> None:
        assert (epoch, history) == (1, ())

    def apply_table(self, path: str, data: bytes) -> None:
        raise AssertionError(path)

    def apply_queue_ends(self, data: bytes) -> None:
        raise AssertionError(data)

    def apply_topic_deletion(self, gone: TopicDeletion) -> None:
        raise AssertionError(gone)

    def become_master(self) -> None:
        raise AssertionError("nobody asks for it")

    def has_unreplicated_deletions(self, log_offset: int) -> bool:
        return False


class Pair:
    """A master's end and a copy's, with nothing between them."""

    def __init__(self) -> None:
        self.master = Store(SimDisk(), StoreSettings(log_segment_size=1 << 20))
        self.master.open(1_000)
        copy = Store(SimDisk(), StoreSettings(log_segment_size=1 << 20))
        copy.open(1_000)
        self.log = copy.become_copy()
        epoch = MasterEpoch("c", "b", "g", 1, (), "a", b"")
        self.stream = CopyStream(self.master.log, epoch, nonce="m", tables=list, now_ms=0)
        self.copy = CopyConnection(
            self.log, CopyEffects(), hello=self._hello, secret=b"", nonce="n", now_ms=0
        )
        self.reports: list[bytes] = []
        while self.stream.hello is None or not self.copy.is_welcome:
            self.pump()
        self.pump()

    def _hello(self) -> Hello:
        return Hello(
            cluster="c", broker="b", group="g", member="b", incarnation="i", promised=0,
            history=(), log_begin=0, log_end=0, segment_size=1 << 20, nonce="",
        )  # fmt: skip

    def put(self, size: int = 10) -> None:
        self.master.put(Message(topic="t", queue_id=0, body=bytes(size)), 1_000)

    def sends(self) -> list[bytes]:
        """What the master writes now; the copy gets it, and its reports are kept back."""
        chunks = self.stream.bytes_to_send(0, 0)
        self.reports += self.copy.receive(b"".join(chunks), 0)
        if report := self.copy.next_report():
            self.reports.append(report)
        return chunks

    def report(self) -> None:
        reports, self.reports = self.reports, []
        for report in reports:
            self.stream.receive(report, 0)

    def pump(self) -> None:
        self.sends()
        self.report()


def sizes(chunks: list[bytes]) -> Iterator[int]:
    """The size of each part of the log."""
    reader = FrameReader()
    reader.size_max = 1 << 20
    for kind, content in reader.read_frames(b"".join(chunks)):
        assert kind is GroupFrameKind.LOG
        yield len(decode_log(content).body)


@pytest.fixture
def pair() -> Pair:
    return Pair()


def test_what_is_stored_while_parts_are_in_flight_follows_in_one(pair: Pair) -> None:
    for _ in range(copy_stream.IN_FLIGHT_MAX):
        pair.put()
        assert len([*sizes(pair.sends())]) == 1
    begin = pair.master.end_offset
    for _ in range(5):
        pair.put()
        assert pair.sends() == []
    pair.report()
    assert [*sizes(pair.sends())] == [pair.master.end_offset - begin]
    pair.report()
    assert pair.log.end_offset == pair.stream.acknowledged == pair.master.end_offset


def test_after_each_report_the_next_part_is_sent_at_once(pair: Pair) -> None:
    for _ in range(20):
        pair.put()
        assert len([*sizes(pair.sends())]) == 1
        pair.report()


def test_a_whole_batch_waits_for_no_report(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_stream, "BATCH_SIZE", 2_000)
    for _ in range(copy_stream.IN_FLIGHT_MAX):
        pair.put()
        assert pair.sends()
    pair.put(1_500)
    assert pair.sends() == []
    pair.put(1_500)
    assert sum(sizes(pair.sends())) > 3_000
    assert pair.log.end_offset == pair.master.end_offset


@given(st.lists(st.tuples(st.integers(1, 9_000), st.booleans()), max_size=40))
@example([(9_000, False)] * 4 + [(1, False)] * 9)
def test_every_record_arrives_however_parts_are_cut(puts: list[tuple[int, bool]]) -> None:
    """No part in flight is waited for that the copy cannot report, since it ends in a record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copy_stream, "BATCH_SIZE", 2_000)
        patch.setattr(copy_stream, "AHEAD_MAX", 5_000)
        pair = Pair()
        for size, reports in puts:
            pair.put(size)
            pair.sends()
            if reports:
                pair.report()
        for _ in range(len(puts) * 10):
            pair.pump()
        assert pair.log.end_offset == pair.stream.acknowledged == pair.master.end_offset


def test_a_copy_that_may_have_so_much_a_second_gets_no_more(pair: Pair) -> None:
    for _ in range(40):
        pair.put(5_000)
    begin = pair.stream.sent_end
    assert pair.stream.bytes_to_send(0, 10_000, rate=100_000)
    first = pair.stream.sent_end - begin
    assert first == 2_000  # of 20 ms
    assert pair.stream.bytes_to_send(0, 10_001, rate=100_000) or pair.stream.wake_at_ms() <= 10_010
    assert pair.stream.bytes_to_send(0, 11_000, rate=100_000)
    assert pair.stream.sent_end - begin <= 2 * 2_000 + 100
    assert pair.stream.bytes_to_send(0, 11_001, rate=0)
    assert pair.stream.sent_end == pair.master.end_offset


def test_who_does_not_name_itself_is_disconnected_however_much_it_sends() -> None:
    """A byte from time to time is no sign of a member."""
    store = Store(SimDisk(), StoreSettings(log_segment_size=1 << 20))
    store.open(1_000)
    epoch = MasterEpoch("c", "b", "g", 1, (), "a", b"")
    stream = CopyStream(store.log, epoch, nonce="m", tables=list, now_ms=100)
    assert stream.wake_at_ms() == 100 + copy_stream.HANDSHAKE_MS
    for nth, now_ms in enumerate(range(100, 100 + copy_stream.HANDSHAKE_MS, 500)):
        stream.receive(b"\x00\x00\xff\xff\x02{"[nth : nth + 1], now_ms)
        assert stream.keep_alive(0, now_ms) == b""
    with pytest.raises(RemoteProtocolError, match="no member has named itself for 3 s"):
        stream.keep_alive(0, 100 + copy_stream.HANDSHAKE_MS)


def test_a_member_that_has_named_itself_has_its_time(pair: Pair) -> None:
    assert pair.stream.keep_alive(0, copy_stream.SILENT_MS - 1)
    with pytest.raises(RemoteProtocolError, match="nothing has come for 10 s"):
        pair.stream.keep_alive(0, copy_stream.SILENT_MS)


@pytest.mark.parametrize(("takes", "count"), [(msgspec.UNSET, 0), (False, 0), (True, 1)])
def test_only_copies_that_take_them_are_told_the_ends_of_queues(
    takes: bool | msgspec.UnsetType, count: int
) -> None:
    store = Store(SimDisk(), StoreSettings(log_segment_size=1 << 20))
    store.open(1_000)
    epoch = MasterEpoch("c", "b", "g", 1, (), "a", b"")
    frames = [(QUEUE_ENDS, encode_table(QUEUE_ENDS, b"{}"), 0)]
    stream = CopyStream(store.log, epoch, nonce="m", tables=lambda: frames, now_ms=0)
    hello = Hello("c", "b", "g", "b", "i", 0, (), 0, 0, 1 << 20, "n", takes_queue_ends=takes)
    proof = compute_proof(b"", "copy", "m", hello.proved_content())
    hello = msgspec.structs.replace(hello, proof=proof)
    stream.receive(encode_struct(GroupFrameKind.HELLO, hello), 0)
    assert b"".join(stream.bytes_to_send(0, 0)).count(QUEUE_ENDS.encode()) == count
