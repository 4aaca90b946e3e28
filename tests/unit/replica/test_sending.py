"""The master's end: where a copy starts, what is sent, and what is believed."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.log_records import parse_records
from escrowmq.codec.record_layout import FRONT, MAGIC_FILLER
from escrowmq.errors import RemoteProtocolError
from escrowmq.replica.appending import RECORD_SIZE_MAX
from escrowmq.replica.frames import TransferReader, encode_report
from escrowmq.replica.sending import (
    AHEAD_MAX,
    LogSender,
    Redeem,
    SendingLimits,
    Ticket,
    send_window_end,
)
from escrowmq.store.results import PutStatus
from escrowmq.store.store import Store
from escrowmq.testing.disk import SimDisk
from tests.unit.replica.logs import TERMS, Bytes, no_ticket


def sender(log: Bytes, terms: SendingLimits = TERMS, redeem: Redeem = no_ticket) -> LogSender:
    return LogSender(log, terms, redeem, host="10.0.0.2", now_ms=0)


def sent(to: LogSender, now_ms: int = 0) -> list[tuple[int, bytes]]:
    return list(TransferReader().read_transfers(b"".join(to.transfers(now_ms))))


def test_nothing_is_sent_before_the_first_report() -> None:
    to = sender(Bytes(b"x" * 50))
    assert sent(to) == []
    to.receive(encode_report(10)[:7], 1)
    assert sent(to) == []
    to.receive(encode_report(10)[7:], 2)
    assert sent(to) == [(10, b"x" * 40)]


@pytest.mark.parametrize(("size", "start"), [(0, 0), (999, 0), (1000, 1000), (2500, 2000)])
def test_an_empty_slave_begins_with_the_last_file(size: int, start: int) -> None:
    to = sender(Bytes(b"x" * size))
    to.receive(encode_report(0), 0)
    assert to.start == start
    assert b"".join(body for _, body in sent(to)) == b"x" * (size - start)


@pytest.mark.parametrize("reported", [-1, -(2**63), 51, 2**63 - 1, 19])
def test_what_is_not_of_the_log_is_refused(reported: int) -> None:
    to = sender(Bytes(b"x" * 30, first=20, segment_size=20))
    with pytest.raises(RemoteProtocolError, match="the log has 20 to 50"):
        to.receive(encode_report(reported), 0)
    assert to.acknowledged == -1


def test_strangers_bytes_are_an_offset_that_no_log_has() -> None:
    with pytest.raises(RemoteProtocolError):
        sender(Bytes(b"x" * 30)).receive(b"GET / HTTP/1.1\r\n\r\n", 0)


def test_nobody_has_more_than_was_sent() -> None:
    to = sender(Bytes(b"x" * 300))
    to.receive(encode_report(100), 0)
    with pytest.raises(RemoteProtocolError, match="was sent the log only up to 100"):
        to.receive(encode_report(101), 0)
    sent(to)
    to.receive(encode_report(250), 0)  # within a record: transfers are cut anywhere
    assert to.acknowledged == 250
    to.receive(encode_report(120), 0)
    assert to.acknowledged == 250
    with pytest.raises(RemoteProtocolError):
        to.receive(encode_report(-5), 0)


def test_a_slave_that_begins_with_the_last_file_has_nothing_before_it() -> None:
    to = sender(Bytes(b"x" * 1500))
    to.receive(encode_report(0), 0)
    to.receive(encode_report(0), 0)
    assert to.acknowledged == -1
    sent(to)
    to.receive(encode_report(1200), 0)
    assert to.acknowledged == 1200


def test_transfers_are_bounded_and_cross_no_file() -> None:
    to = sender(Bytes(bytes(range(250)) * 8))
    to.receive(encode_report(950), 0)
    found = sent(to)
    assert max(len(body) for _, body in found) == TERMS.batch_size
    assert [len(body) for at, body in found if at < 1000] == [50]
    assert b"".join(body for _, body in found) == (bytes(range(250)) * 8)[950:]


def test_what_waits_in_memory_is_bounded() -> None:
    terms = SendingLimits(batch_size=32_768, heartbeat_ms=5_000, housekeeping_ms=20_000)
    to = sender(Bytes(b"x" * (AHEAD_MAX + 5_000), segment_size=1 << 30), terms)
    to.receive(encode_report(1), 0)
    assert sum(len(body) for _, body in sent(to)) == AHEAD_MAX
    assert sent(to) == []
    to.receive(encode_report(1001), 0)
    assert sum(len(body) for _, body in sent(to)) == 1000


def test_signs_of_life_and_silence() -> None:
    to = sender(Bytes(b"x" * 30))
    assert to.keep_alive(19_999) == b""
    assert to.wake_at_ms() == 20_000
    to.receive(encode_report(30), 1_000)
    assert to.keep_alive(5_999) == b""
    assert to.wake_at_ms() == 6_000
    assert to.keep_alive(6_000) == encode_report(30) + bytes(4)
    assert to.keep_alive(6_001) == b""
    with pytest.raises(RemoteProtocolError, match="nothing for 20 s"):
        to.keep_alive(21_000)


def test_a_segment_that_is_deleted_under_a_slow_slave_closes_it() -> None:
    log = Bytes(b"x" * 300)
    to = sender(log)
    to.receive(encode_report(10), 0)
    log.first, log.data = 1000, b"y" * 10
    with pytest.raises(RemoteProtocolError, match="nothing to read at offset 10"):
        to.transfers(0)


def test_a_ticket_begins_anywhere_and_names_the_slave() -> None:
    tickets = {1 << 62: Ticket(start=0, identity="broker-a/1")}
    to = sender(Bytes(b"x" * 1500), redeem=tickets.get)
    to.receive(encode_report(1 << 62), 0)
    assert (to.start, to.identity, to.acknowledged) == (0, "broker-a/1", -1)
    assert sum(len(body) for _, body in sent(to)) == 1500
    to.receive(encode_report(1500), 0)
    assert to.acknowledged == 1500


def test_the_first_report_says_where_to_begin_also_when_others_follow_it_at_once() -> None:
    to = sender(Bytes(b"x" * 300))
    to.receive(encode_report(100) + encode_report(100), 0)
    assert to.start == 100
    to = sender(Bytes(b"x" * 300), redeem={1 << 62: Ticket(start=0, identity="b")}.get)
    to.receive(encode_report(1 << 62) + encode_report(0), 0)
    assert (to.start, to.identity) == (0, "b")
    with pytest.raises(RemoteProtocolError):
        sender(Bytes(b"x" * 300)).receive(encode_report(0) + encode_report(200), 0)


def test_who_has_no_ticket_is_refused_where_one_is_needed() -> None:
    terms = msgspec.structs.replace(TERMS, needs_ticket=True)
    with pytest.raises(RemoteProtocolError, match="escrowHaTickets"):
        sender(Bytes(b"x" * 300), terms).receive(encode_report(100), 0)


@given(st.lists(st.integers(-10, 400), max_size=20), st.integers(0, 300), st.integers(0, 300))
def test_no_order_of_reports_makes_a_slave_have_what_it_was_not_sent(
    reports: list[int], size: int, grown: int
) -> None:
    log = Bytes(b"x" * size)
    to = sender(log)
    try:
        for nth, reported in enumerate(reports):
            to.receive(encode_report(reported), nth)
            assert to.acknowledged <= to.sent_end <= log.end_offset
            if nth % 2:
                to.transfers(nth)
            if nth == 3:
                log.data += b"y" * grown
    except RemoteProtocolError:
        pass
    assert to.acknowledged <= to.sent_end <= log.end_offset


def large_log(body_size: int) -> Bytes:
    """A large record between two small ones."""
    disk = SimDisk()
    store = Store(disk, StoreSettings(log_segment_size=1 << 23, body_size_max=1 << 23))
    store.open(1_000)
    for body in (b"first", bytes(body_size), b"last"):
        put = store.put(Message(topic="t", queue_id=0, body=body), 1_000)
        assert put.status is PutStatus.OK
    return Bytes(store.log.read(0, store.end_offset), segment_size=1 << 23)


@pytest.mark.parametrize("body_size", [AHEAD_MAX - 1_000, AHEAD_MAX, AHEAD_MAX + 5_000])
def test_a_record_is_sent_whole_however_large_it_is(body_size: int) -> None:
    """Copies of ours report whole records alone. RocketMQ's maxMessageSize is as much as is sent
    ahead, so that a record with its head is more."""
    log = large_log(body_size)
    to = sender(log, msgspec.structs.replace(TERMS, batch_size=1 << 18))
    begin, size = parse_records(log.data, 0).records[1][:2]
    to.receive(encode_report(begin), 0)
    assert sum(len(body) for _, body in sent(to)) >= size
    to.receive(encode_report(begin + size), 1)
    sent(to)
    assert to.sent_end == log.end_offset


def test_the_middle_of_a_record_opens_no_larger_window() -> None:
    log = large_log(AHEAD_MAX + 5_000)
    begin, _ = parse_records(log.data, 0).records[1][:2]
    to = sender(log, msgspec.structs.replace(TERMS, batch_size=1 << 18))
    to.receive(encode_report(begin + 1), 0)
    assert sum(len(body) for _, body in sent(to)) == AHEAD_MAX


def test_a_filler_is_sent_whole_and_no_more_than_a_record_may_have() -> None:
    size = AHEAD_MAX + 5_000
    filler = FRONT.pack(size, MAGIC_FILLER) + bytes(size - FRONT.size)
    assert send_window_end(Bytes(filler * 2, segment_size=size), size, 1_000) == 2 * size
    assert send_window_end(Bytes(filler, segment_size=size), 0, 1_000) == size
    huge = FRONT.pack(2**32 - 1, MAGIC_FILLER) + bytes(RECORD_SIZE_MAX)
    assert send_window_end(Bytes(huge, segment_size=1 << 30), 0, 1_000) == RECORD_SIZE_MAX
