"""Halves and ENDs that are served the short way, held to what the general path does."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.message import Message, Topic
from escrowmq.store.store import PutResult, PutStatus
from escrowmq.txn.op_records import OPS_OF_RECORD_MAX
from tests.unit.broker.both import (
    HALF,
    Begun,
    Both,
    Side,
    begin,
    end,
    frame,
    half,
    pull,
    send,
)


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("verdict", ["8", "12"])
def test_halves_and_ends_are_served_the_short_way(verdict: str, *, is_binary: bool) -> None:
    both = Both()
    both.feed((1, send(is_binary=is_binary)))  # queues are made the general path
    first = begin(both, half(0, is_binary=is_binary))
    both.feed((1, end(first[0], is_binary=is_binary)))
    halves = begin(
        both, *[half(n, {"TAGS": "a", "KEYS": "k m"}, is_binary=is_binary) for n in range(1, 9)]
    )
    before = both.fast.served_count
    both.feed((1, b"".join(end(one, verdict, is_binary=is_binary) for one in halves)))
    assert both.fast.served_count - before >= 7
    both.feed((2, pull(0)))
    both.end()


ENDS: dict[str, dict[str, str]] = {
    "rollback": {"commitOrRollback": "12"},
    "unknown": {"commitOrRollback": "0"},
    "from a check": {"fromTransactionCheck": "true"},
    "another group": {"producerGroup": "others"},
    "another key": {"transactionId": "0A"},
    "no key": {"transactionId": "-"},
    "another place": {"commitLogOffset": "0"},
    "another offset": {"tranStateTableOffset": "99"},
    "a count": {"escrowCount": "1"},
    "a count that is wrong": {"escrowCount": "2"},
    "an id": {"escrowId": "abc"},
}


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("flag", [0, 2])
@pytest.mark.parametrize("name", ENDS)
def test_odd_end_makes_no_difference(name: str, flag: int, *, is_binary: bool) -> None:
    both = Both()
    both.feed((1, send()))
    for one in begin(both, half(0), half(1)):
        both.feed((1, end(one, is_binary=is_binary)))
    halves = begin(both, *[half(n, is_binary=is_binary) for n in range(2, 6)])
    odd = end(halves[1], flag=flag, is_binary=is_binary, **ENDS[name])
    plain = [end(one, is_binary=is_binary) for one in halves]
    both.feed((1, plain[0] + odd + plain[2]), (1, plain[1] + plain[1]), (1, plain[3] + plain[0]))
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", ["msgId", "transactionId", "topic"])
def test_an_end_with_bytes_that_are_no_text_is_broken_every_way(
    name: str, *, is_binary: bool
) -> None:
    both = Both()
    both.feed((1, send(body=b"x" * 1_000)), (1, half(0)))
    halves = begin(both, *[half(n, is_binary=is_binary) for n in range(1, 5)])
    frames = [end(one, flag=2, is_binary=is_binary, **{name: one.key}) for one in halves]
    key = halves[2].key.encode()
    at = frames[2].index(key, frames[2].index(name.encode()))
    frames[2] = frames[2][:at] + b"\xff" + frames[2][at + 1 :]
    both.feed((1, frames[0]), (1, frames[1]), (1, b"".join(frames[2:])))
    assert len(both.fast.closed) == 1
    both.end()


def test_an_end_in_json_that_says_two_codes_is_what_the_last_one_says() -> None:
    both = Both()
    both.feed((1, send()))
    one, other = begin(both, half(0), half(1))
    data = end(one, flag=0, is_binary=False)
    size = int.from_bytes(data[4:8], "big")
    header = data[8 : 8 + size].replace(b'{"code":37,', b'{"code":37,"code":361,', 1)
    odd = (4 + len(header)).to_bytes(4, "big") + len(header).to_bytes(4, "big") + header
    for plain in (end(other, is_binary=False), b""):
        (answer,) = both.feed((1, plain + odd))
        assert answer.code != 0
    both.feed((1, data))
    both.end()


def test_halves_that_are_not_remembered_are_committed_the_short_way_too() -> None:
    both = Both()
    both.feed((1, send()))
    both.feed((1, end(begin(both, half(0))[0])))
    long = send({**HALF, "UNIQ_KEY": "long"}, f="4", body=b"x" * 5_000)
    halves = begin(both, *[half(n, {"TAGS": "a", "KEYS": "k m"}) for n in range(1, 9)], long)
    both.forget()
    before = both.fast.served_count
    frames = [end(one) for one in halves]
    both.feed((1, b"".join(frames[:4] + frames[2:3] + frames[4:])), (1, frames[0] + frames[8]))
    assert (
        both.fast.served_count - before >= len(halves) - 3
    )  # the repeated one, and what passes behind it
    both.feed((2, pull(0)))
    both.end()


@pytest.mark.parametrize("is_told", [True, False])
def test_halves_of_before_a_change_of_what_messages_get_go_the_general_way(
    *, is_told: bool
) -> None:
    both = Both()
    both.feed((1, send()))
    halves = begin(both, half(0), half(1))
    both.forget()
    if is_told:
        body = b"traceOn=false"
        both.feed((2, frame(Request.UPDATE_BROKER_CONFIG, {}, body=body)))
    both.feed((1, end(halves[0]) + end(halves[1])))
    both.end()


LAST_BYTES = {
    "size": 3, "magic": 7, "checksum": 11, "queue": 15, "flag": 19, "queue offset": 27,
    "log offset": 35, "system flag": 38, "host": 67, "prepared": 83, "body's size": 87,
}  # fmt: skip
"""Of the fields of a record, where a one is added."""

TEXTS = {
    "body": b"body", "topic": b"HALF_TOPIC", "key": b"__transactionId__\x010A",
    "place": b"REAL_TOPIC\x01Or", "name": b"REAL_TOPIC", "mark": b"__transactionId",
    "kind": b"TRAN_MSG\x01true",
}  # fmt: skip
"""The same of what stands behind them."""


@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize("changed", [*LAST_BYTES, *TEXTS])
def test_a_half_whose_bytes_have_changed_is_not_committed_the_short_way(
    changed: str, *, is_alone: bool
) -> None:
    both = Both()
    both.feed((1, send()))
    halves = begin(both, *[half(number) for number in range(5)])
    both.feed((1, end(halves[3])), (1, end(halves[4])))
    both.forget()
    for side in both.sides:
        log = side.core.broker.store.log.segments
        record = log.read(halves[1].log_offset, 500)
        at = LAST_BYTES.get(changed, -1)
        if at < 0:
            at = record.index(TEXTS[changed]) + len(TEXTS[changed]) - 1
        file = log.file(halves[1].log_offset)
        assert file is not None
        file.write(halves[1].log_offset + at, bytes([record[at] + 1]))
    before = both.fast.served_count
    if is_alone:
        both.feed(*[(1, end(one)) for one in halves[:3]])
        assert both.fast.served_count <= before + 2 + (changed in ("flag", "system flag"))
    else:
        both.feed((1, b"".join(map(end, halves[:3]))))
    both.end()


@pytest.mark.parametrize(
    "properties",
    [
        {"escrowTransaction": "t1"}, {"escrowDelay": "true", "DELAY": "2"}, {"PGROUP": ""},
        {"CHECK_IMMUNITY_TIME_IN_SECONDS": "9"}, {"TRAN_MSG": "false"}, {"TRAN_MSG": "TRUE"},
        {"escrowChecker": "db"}, {"PGROUP": "x" * 300}, {"DELAY": "3"}, {"PGROUP": "a\x7fb"},
        {"__transactionId__": "mine"}, {"escrowOrderKey": "k"},
    ],
)  # fmt: skip
def test_odd_half_makes_no_difference(properties: dict[str, str]) -> None:
    both = Both()
    both.feed((1, send()), (1, half(0) + half(1)))
    both.feed((1, half(2) + half(3, properties) + half(4)), (1, half(5, properties)))
    both.pass_time(70_000)
    both.end()


@pytest.mark.parametrize(
    "properties",
    [
        {"escrowTransaction": "t1"}, {"escrowDelay": "true", "DELAY": "2"}, {"TRAN_MSG": "TRUE"},
        {"escrowChecker": "db"}, {"PGROUP": "a\x7fb"}, {"__transactionId__": "mine"},
        {"escrowOrderKey": "k"}, {"KEYS": "a b c d e f"}, {"x__transactionId__": "mine"},
        {"REAL_TOPIC": "Others"}, {"TAGS": "ü"}, {"KEYS": ""}, {"MSG_REGION": "mine"},
    ],
)  # fmt: skip
def test_odd_half_that_is_not_remembered_makes_no_difference(properties: dict[str, str]) -> None:
    both = Both()
    both.feed((1, send()), (1, half(0) + half(1)))
    replies = both.feed((1, half(2) + half(3, properties) + half(4) + half(5, properties)))
    begun = []
    for reply in replies:
        if reply.code == 0 and (ext := reply.ext or {}):
            log_offset = int(ext["msgId"][16:], 16)
            begun.append(Begun(int(ext["queueOffset"]), log_offset, ext["transactionId"]))
    both.forget()
    both.feed((1, b"".join(end(one) for one in begun)))
    for one in begun:
        both.feed((1, end(one)))
    both.feed((2, pull(0)))
    both.pass_time(70_000)
    both.end()


def test_half_that_is_committed_after_its_topic_became_narrow_goes_where_it_is_read() -> None:
    both = Both()
    both.feed((1, send(e="3")), (1, send(e="1")))
    halves = begin(both, send(HALF, f="4", e="3"), send(HALF, f="4", e="3"))
    config = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    both.feed((2, frame(Request.UPDATE_AND_CREATE_TOPIC, config)))
    both.feed(*[(1, end(one)) for one in halves])
    both.end()


def test_queue_that_is_written_and_not_read_gets_messages_and_none_of_halves() -> None:
    """Its end is known on the fast path, since messages are sent there."""
    both = Both()
    both.feed((1, send(e="3")), (1, send(e="1")))
    halves = begin(both, *[send(HALF | {"UNIQ_KEY": f"{n:032X}"}, f="4", e="3") for n in range(8)])
    both.feed((1, end(halves[0])), (1, end(halves[1])))
    config = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "2", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
    }  # fmt: skip
    both.feed((2, frame(Request.UPDATE_AND_CREATE_TOPIC, config)))
    both.feed((1, send(e="3")), (1, send(e="3")), (1, send(e="1")))
    both.feed((1, end(halves[2]) + end(halves[3])), (1, end(halves[4])))
    both.forget()
    both.feed((1, end(halves[5]) + end(halves[6])), (1, end(halves[7])))
    both.end()


def test_ends_that_are_all_of_an_input_are_sealed_in_their_run() -> None:
    """Nothing is left to be done at its end: the same records, and the same replies."""
    both = Both()
    both.feed((1, send(body=b"x" * 1_000)), (1, half(0)))  # all places have four digits
    halves = begin(both, *[half(n) for n in range(1, 9)])
    for verdict in ("8", "12"):
        both.feed((1, end(halves.pop(), verdict, flag=0)))
    unsealed = both.fast.core.transactions.engine.unsealed
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unsealed, "seal", None)
        for some, verdict in ((halves[:1], "8"), (halves[1:2], "12"), (halves[2:], "8")):
            replies = both.feed((1, b"".join(end(one, verdict, flag=0) for one in some)))
            assert [reply.code for reply in replies] == [0] * len(some)
    both.end()


def test_ends_are_served_the_short_way_after_topics_have_changed() -> None:
    both = Both()
    both.feed((1, send()), (1, send()))
    halves = begin(both, half(1), half(2), half(3), half(4))
    both.feed((1, end(halves.pop(), flag=0)), (2, send(topic="Fresh")))
    before = both.fast.served_count
    both.feed((1, end(halves.pop(), flag=0)), (1, end(halves.pop(), flag=0)))
    assert both.fast.served_count - before == 2
    both.end()


def test_more_ends_of_one_input_than_an_op_record_names_are_sealed_by_several() -> None:
    both = Both()
    both.feed((1, send()), (1, send()))
    found: list[Begun] = []
    for first in range(0, OPS_OF_RECORD_MAX + 10, 70):
        found += begin(both, *(half(number) for number in range(first, first + 70)))
    both.feed((1, end(found.pop(), "12", flag=0)))
    before = both.fast.served_count
    both.feed((1, b"".join(end(one, "12", flag=0) for one in found)))
    assert both.fast.served_count - before > OPS_OF_RECORD_MAX
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_ends_whose_op_record_has_no_room_are_refused_as_far_as_they_are_undone(
    *, is_binary: bool
) -> None:
    both = Both()
    both.feed((1, send(body=b"x" * 1_000)), (1, half(0)))  # all places have four digits
    halves = begin(both, *[half(n, is_binary=is_binary) for n in range(1, 9)])
    some = [
        end(one, "12" if nth % 3 else "8", flag=0, is_binary=is_binary)
        for nth, one in enumerate(halves)
    ]
    both.feed((1, some[0] + some[1]))
    for side in both.sides:
        refuse_op_records(side)
    before = both.fast.served_count
    replies = both.feed((1, b"".join(some[2:])))
    assert both.fast.served_count - before >= 5
    assert {reply.code for reply in replies} == {0, 14}
    assert {reply.opaque for reply in replies} == {3}
    for side in both.sides:
        del side.core.broker.store.put
    both.feed((1, b"".join(some)), (1, b"".join(some)))
    both.end()


def refuse_op_records(side: Side) -> None:
    store = side.core.broker.store
    put = store.put

    def grudging(message: Message, now_ms: int, **named: Any) -> PutResult:
        if message.topic == Topic.OP:
            return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason="asked to fail")
        return put(message, now_ms, **named)

    store.put = grudging  # type: ignore[method-assign]
    fast_path = side.core.remoting.fast_path
    if fast_path is not None:
        run = fast_path._puts._run
        tail = run.tail
        run.tail = lambda topic, queue_id: (  # type: ignore[method-assign]
            None if topic == Topic.OP else tail(topic, queue_id)
        )


def test_halves_that_nobody_could_be_asked_about_are_ended_the_short_way() -> None:
    both = Both()
    both.feed((1, send()), (1, half(0)))
    others = [{"PGROUP": "others"}, {}, {"PGROUP": "others"}, {}, {}]
    halves = begin(both, *[half(n, more) for n, more in enumerate(others, 1)])
    both.pass_time(70_000)
    for side in both.sides:
        assert side.core.transactions.engine.halves.parked
    frames = [
        end(one, "12" if nth == 3 else "8", producerGroup=more.get("PGROUP", "load"))
        for nth, (one, more) in enumerate(zip(halves, others, strict=True))
    ]
    both.feed((1, frames[0]), (1, b"".join(frames[1:])), (2, pull(0)))
    for side in both.sides:
        assert side.core.transactions.engine.halves.parked == {"load": {0: None}}
    both.pass_time(70_000)
    both.end()


def test_ends_of_one_read_count_how_long_each_took() -> None:
    both = Both()
    both.feed((1, send()), (1, half(0)))
    halves = []
    for number, span_ms in enumerate((0, 4_000, 5_000, 60_000, 1)):
        both.pass_time(span_ms)
        halves += begin(both, half(number + 1))
    both.feed((1, end(halves[0])), (1, b"".join(end(one) for one in halves[1:])))
    both.end()


def test_ends_of_one_size_that_say_different_things_are_known_beside_each_other() -> None:
    both = Both()
    both.feed((1, send(body=b"x" * 10_000)), (1, half(0)))  # all places have five digits
    halves = begin(both, *[half(n) for n in range(1, 9)])
    frames = [end(one, flag=2 * (nth % 2)) for nth, one in enumerate(halves)]
    assert len({len(one) for one in frames}) == 1
    both.feed((1, frames[0]), (1, frames[1]))
    before = both.fast.served_count
    both.feed((1, b"".join(frames[2:])))
    assert both.fast.served_count - before == 6
    both.end()
