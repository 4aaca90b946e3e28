"""Requests that are served the short way and wait for the disk are answered as by the general path,
whatever becomes of their sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.command import encode_command
from tests.unit.broker.both import (
    HALF,
    PLAIN,
    Begun,
    Both,
    Side,
    begin,
    begun_of,
    end,
    frame,
    half,
    pull,
    send,
)
from tests.unit.broker.fast.test_fast_batches import batch, entry
from tests.unit.broker.fast.test_fast_ends import refuse_op_records


def warm(*, is_binary: bool = True, **settings: object) -> Both:
    """Brokers that know queues and shapes, and hold their syncs from now on."""
    both = Both(is_sync_flush=True, **settings)
    one = send(is_binary=is_binary, body=b"x" * 10_000)
    both.feed((1, one), (1, one), (2, one), (2, one), (1, batch([entry(0)], is_binary=is_binary)))
    first = begin(both, half(0, is_binary=is_binary))[0]
    both.feed((1, end(first, flag=0, is_binary=is_binary)))
    assert not both.is_syncing
    both.hold_syncs()
    return both


def begun(both: Both, count: int, *, is_binary: bool = True) -> list[Begun]:
    """Halves that are durable."""
    frames = [half(200 + n, is_binary=is_binary) for n in range(count)]
    assert both.feed((1, b"".join(frames))) == []
    found = []
    for reply in both.let_sync():
        ext = reply.ext or {}
        place = int(ext["queueOffset"]), int(ext["msgId"][16:], 16)
        found.append(Begun(*place, ext["transactionId"]))
    assert not both.is_syncing
    return found


def done(both: Both) -> set[int]:
    return {reply.code for reply in both.let_sync()}


def done_after_a_while(both: Both) -> set[int]:
    assert both.pass_time(4) == []
    return done(both)


def failed(both: Both) -> set[int]:
    return {reply.code for reply in both.fail_sync()}


def late(both: Both) -> set[int]:
    assert both.pass_time(4_999) == []
    codes = {reply.code for reply in both.pass_time(1)}
    assert both.let_sync() == []
    return codes


FATES: dict[str, tuple[Callable[[Both], set[int]], int]] = {
    "done": (done, Response.SUCCESS),
    "done after a while": (done_after_a_while, Response.SUCCESS),
    "failed": (failed, Response.SERVICE_NOT_AVAILABLE),
    "late": (late, Response.FLUSH_DISK_TIMEOUT),
}


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("fate", FATES)
def test_sends_of_all_kinds_are_answered_with_their_sync(fate: str, *, is_binary: bool) -> None:
    both = warm(is_binary=is_binary)
    before = both.fast.served_count
    sends = [send(opaque=20 + n, flag=2 * (n == 2), is_binary=is_binary) for n in range(5)]
    halves = [half(100 + n, is_binary=is_binary) for n in range(3)]
    one = batch([entry(1), entry(2)], is_binary=is_binary)
    silent = batch([entry(3)], is_binary=is_binary, flag=2)
    assert both.feed((1, b"".join([*sends, one, silent, *halves, one]))) == []
    assert both.fast.served_count - before >= 9  # all but such as were never seen before
    judge, code = FATES[fate]
    assert judge(both) == {code}
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("fate", FATES)
def test_ends_are_answered_with_the_sync_of_their_op_record(fate: str, *, is_binary: bool) -> None:
    both = warm(is_binary=is_binary)
    halves = begun(both, 12, is_binary=is_binary)
    frames = [
        end(one, "12" if n % 3 == 0 else "8", flag=2 * (n % 4 == 0), is_binary=is_binary)
        for n, one in enumerate(halves)
    ]
    before = both.fast.served_count
    assert both.feed((1, frames[1]), (1, b"".join([frames[0], send(), *frames[2:]]))) == []
    assert both.fast.served_count - before >= 8
    judge, code = FATES[fate]
    assert judge(both) == {code}
    if fate != "failed":  # the second read was in nobody's sync yet
        while both.is_syncing:
            both.let_sync()
    both.end()


def waiting_for_copies(*, is_binary: bool, is_sync_flush: bool = False) -> Both:
    """Brokers that know queues and shapes, and answer senders when a replica has their messages."""
    both = Both(is_sync_flush=is_sync_flush)
    one = send(is_binary=is_binary, body=b"x" * 10_000)
    both.feed((1, one), (1, one), (2, one), (2, one), (1, batch([entry(0)], is_binary=is_binary)))
    begin(both, half(0, is_binary=is_binary), half(1, is_binary=is_binary))
    for side in both.sides:
        side.core.broker.store.ends.wait_for_copies(timeout_ms=3_000)
    copied(both)
    return both


def copied(both: Both) -> list[Command]:
    """What is answered when a replica has all of the log."""

    def confirm(side: Side) -> None:
        store = side.core.broker.store
        store.ends.set_confirmed(store.end_offset)
        side.core.broker.answers.waiting.send_ready()
        side.perform()

    return both._each(confirm)


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("is_binary", [True, False])
def test_senders_that_wait_for_a_replica_are_answered_with_its_report(
    *, is_binary: bool, is_late: bool
) -> None:
    both = waiting_for_copies(is_binary=is_binary)
    sends = [send(opaque=20 + n, flag=2 * (n == 2), is_binary=is_binary) for n in range(5)]
    one = batch([entry(1), entry(2)], is_binary=is_binary)
    before = both.fast.served_count
    assert both.feed((1, b"".join([*sends, one, half(7, is_binary=is_binary), one]))) == []
    assert both.fast.served_count - before >= 7
    assert both.pass_time(2_999) == []
    replies = both.pass_time(1) if is_late else copied(both)
    code = Response.FLUSH_SLAVE_TIMEOUT if is_late else Response.SUCCESS
    assert [reply.code for reply in replies] == [code] * 7
    assert copied(both) == []
    both.end()


@pytest.mark.parametrize("is_late", [True, False])
@pytest.mark.parametrize("is_binary", [True, False])
def test_ends_wait_for_a_replica_to_have_their_op_record(*, is_binary: bool, is_late: bool) -> None:
    both = waiting_for_copies(is_binary=is_binary)
    halves = [half(20 + n, is_binary=is_binary) for n in range(8)]
    assert both.feed((1, b"".join(halves))) == []
    found = begun_of(b"".join(encode_command(reply) for reply in copied(both)))
    verdicts = ["12" if n % 3 else "8" for n in range(8)]
    frames = [
        end(one, verdict, flag=0, is_binary=is_binary)
        for one, verdict in zip(found, verdicts, strict=True)
    ]
    assert both.feed((1, b"".join(frames))) == []
    replies = both.pass_time(3_000) if is_late else copied(both)
    code = Response.FLUSH_SLAVE_TIMEOUT if is_late else Response.SUCCESS
    assert [reply.code for reply in replies] == [code] * 8
    assert {(reply.ext or {}).get("escrowDurability") for reply in replies} == {
        None if is_late else "memory"
    }
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_ends_tell_how_many_have_them_when_they_are_answered(*, is_binary: bool) -> None:
    both = waiting_for_copies(is_binary=is_binary)

    def say(copies: int) -> None:
        for side in both.sides:
            side.core.broker.store.ends.wait_for_copies(timeout_ms=3_000, copies=copies)

    say(3)
    assert both.feed((1, b"".join(half(20 + n, is_binary=is_binary) for n in range(8)))) == []
    found = begun_of(b"".join(encode_command(reply) for reply in copied(both)))
    frames = [end(one, "8", flag=0, is_binary=is_binary) for one in found]
    before = both.fast.served_count
    both.feed((1, b"".join(frames[:3])))
    said = [(reply.ext or {})["escrowCopies"] for reply in copied(both)]
    both.feed((1, b"".join(frames[3:6])))
    say(2)  # one of them has left meanwhile
    said += [(reply.ext or {})["escrowCopies"] for reply in copied(both)]
    both.feed((1, b"".join(frames[6:])))
    said += [(reply.ext or {})["escrowCopies"] for reply in copied(both)]
    assert said == ["3"] * 3 + ["2"] * 5
    assert both.fast.served_count - before >= 7
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_senders_that_do_not_wait_are_answered_without_a_replica(*, is_binary: bool) -> None:
    both = waiting_for_copies(is_binary=is_binary)
    hasty = send({**PLAIN, "WAIT": "false"}, opaque=8, is_binary=is_binary)
    plain = send(opaque=11, is_binary=is_binary)
    assert [reply.opaque for reply in both.feed((1, plain + hasty))] == [8]
    assert [reply.opaque for reply in copied(both)] == [11]
    both.end()


def test_readers_do_not_wait_for_a_replica() -> None:
    both = waiting_for_copies(is_binary=True)
    _, end_offset = both.fast.core.broker.store.bounds("Orders", 0)
    assert both.feed((2, pull(end_offset))) == []
    assert [reply.code for reply in both.feed((1, send(body=b"seen")))] == [Response.SUCCESS]
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_messages_whose_senders_do_not_wait_are_answered_at_once(*, is_binary: bool) -> None:
    both = warm(is_binary=is_binary)
    hasty = send({**PLAIN, "WAIT": "false"}, opaque=8, is_binary=is_binary)
    last = send("UNIQ_KEY\x010A0B\x02WAIT\x01false", opaque=9, is_binary=is_binary)
    quick = send({**HALF, "WAIT": "false"}, opaque=10, f="4", is_binary=is_binary)
    several = batch([entry(1)], "WAIT\x01false\x02", is_binary=is_binary)
    more = batch([entry(1, WAIT="false")], is_binary=is_binary)
    plain = send(opaque=11, is_binary=is_binary)
    for one in (hasty, last, quick, several):
        replies = both.feed((1, plain + one + plain), (1, one))
        assert [reply.code for reply in replies] == [0]
    assert both.feed((1, more)) == []
    assert both.feed((1, send({**PLAIN, "x": "WAIT"}, b"WAIT\x01false\x02"))) == []
    while both.is_syncing:
        both.let_sync()
    both.end()


def test_answers_that_wait_and_others_keep_the_order_of_the_general_way() -> None:
    both = warm()
    halves = begun(both, 6)
    asks = frame(Request.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"}, opaque=50)
    both.feed((1, send(opaque=1) + asks + send(opaque=2)), (2, pull(0)), (2, send(opaque=3)))
    both.feed((1, end(halves[0], flag=0) + send(opaque=4) + end(halves[1], flag=0)))
    both.feed((2, send(opaque=5, e="1") + end(halves[2], "0") + send(opaque=6)))
    both.let_sync()
    assert both.is_syncing
    both.feed((1, end(halves[0], "12", flag=0) + end(halves[3], flag=0)), (2, send(opaque=7)))
    while both.is_syncing:
        both.let_sync()
    both.end()


def test_reader_who_waits_is_told_when_messages_are_durable() -> None:
    both = warm()
    offset = int((both.feed((2, frame(Request.GET_MAX_OFFSET, {"topic": "Orders", "queueId": "0"})))
                  [0].ext or {})["offset"])  # fmt: skip
    both.feed((2, pull(offset)))
    assert both.feed((1, send() * 3)) == []
    assert [reply.opaque for reply in both.let_sync()] == [7, 7, 7, 9]
    both.end()


@pytest.mark.parametrize("fate", FATES)
def test_peer_that_leaves_before_the_sync_makes_no_difference(fate: str) -> None:
    both = warm()
    halves = begun(both, 4)
    both.feed((1, send() * 3 + b"".join(end(one) for one in halves)), (2, send() * 2))
    both.lose(1)
    FATES[fate][0](both)
    while both.is_syncing:
        both.let_sync()
    both.end()


@pytest.mark.parametrize("fate", FATES)
def test_senders_are_told_what_an_operator_has_changed_meanwhile(fate: str) -> None:
    both = warm()
    halves = begun(both, 2)
    both.feed((1, send() * 3 + batch([entry(1)]) + end(halves[0], flag=0)))
    both.feed((2, frame(Request.UPDATE_BROKER_CONFIG, {}, b"traceOn=false")), (2, send(opaque=8)))
    FATES[fate][0](both)
    while both.is_syncing:
        both.let_sync()
    both.end()


def test_timeout_that_an_operator_sets_counts_from_then_on() -> None:
    both = warm()
    both.feed((1, send() * 3))
    both.feed((2, frame(Request.UPDATE_BROKER_CONFIG, {}, b"syncFlushTimeout=700")))
    both.feed((1, send(opaque=8) * 3), (1, half(5)))
    assert both.pass_time(600) == []
    assert len(both.pass_time(100)) == 7  # those before them wait no longer
    while both.is_syncing:
        both.let_sync()
    both.end()


def test_topic_that_is_deleted_before_the_sync_begins_anew() -> None:
    both = warm()
    both.feed((1, send() * 3))
    both.feed((2, frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})))
    both.feed((1, send() * 2), (1, send() * 2), (2, pull(0)))
    while both.is_syncing:
        both.let_sync()
    both.feed((2, pull(0)))
    both.end()


def test_messages_are_taken_the_short_way_again_once_a_failed_sync_is_mended() -> None:
    both = warm()
    both.feed((1, send() * 3))
    both.fail_sync()
    assert {reply.code for reply in both.feed((1, send() * 3))} == {14}
    for _ in range(9):
        both.pass_time(1_000)
        if both.is_syncing:
            both.let_sync()
    before = both.fast.served_count
    assert both.feed((1, send() * 3)) == []
    assert both.fast.served_count - before == 3
    assert done(both) == {0}
    both.feed((2, pull(0)))
    both.end()


def test_halves_that_are_not_durable_yet_are_ended_the_same() -> None:
    both = warm()
    for reading in (both, None):
        halves = begun(both, 3)
        if reading is None:
            both.forget()
        at, queue_offset = halves[-1].log_offset, halves[-1].queue_offset
        size = at - halves[-2].log_offset
        both.feed((1, half(210) + half(211)))
        early = [
            Begun(queue_offset + n, at + n * size, f"0A000001ABCD18B4AAC20000{209 + n:08X}")
            for n in (1, 2)
        ]
        if reading is None:
            both.forget()
        both.feed((1, b"".join(end(one, flag=0) for one in [*halves, *early])))
        while both.is_syncing:
            both.let_sync()
    both.end()


@pytest.mark.parametrize("fate", FATES)
def test_ends_whose_op_record_has_no_room_are_refused_at_once(fate: str) -> None:
    both = warm()
    halves = begun(both, 9)
    some = [end(one, "12" if n % 3 else "8", flag=0) for n, one in enumerate(halves)]
    both.feed((1, some[0] + some[1]))
    for side in both.sides:
        refuse_op_records(side)
    replies = both.feed((1, b"".join(some[2:])))
    assert {reply.code for reply in replies} == {14}
    FATES[fate][0](both)
    for side in both.sides:
        del side.core.broker.store.put
    both.feed((1, b"".join(some)), (2, pull(0)))
    while both.is_syncing:
        both.let_sync()
    both.end()


def test_half_topic_is_as_long_as_what_is_durable() -> None:
    both = warm()
    before = both.fast.core.broker.store.bounds(Topic.HALF, 0)
    both.feed((1, half(300) * 3))
    assert [side.core.broker.store.bounds(Topic.HALF, 0) for side in both.sides] == [
        before for _ in both.sides
    ]
    both.let_sync()
    both.end()
