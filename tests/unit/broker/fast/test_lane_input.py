"""What the native lane gets. That it serves as the general path does is tested by test_fast_path,
test_fast_ends, and with odd bytes by tests/fuzz/test_lane.py."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.fast import lane_input
from escrowmq.broker.fast.end_replies import NOTE
from escrowmq.broker.fast.lane_input import LaneQueues, TargetQueue, lane_shape
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.reply_template import sent_template
from escrowmq.codec.request_shapes import END, SEND, RequestKind, learn_shape
from escrowmq.lane.native import LaidOut, LaneShape, requests_lane
from tests.unit.broker.both import (
    HALF,
    PLAIN,
    Begun,
    Both,
    Side,
    Watched,
    begin,
    end,
    frame,
    half,
    pull,
    send,
)


def told(request: bytes, kind: RequestKind = SEND) -> LaneShape | None:
    header_end = 8 + int.from_bytes(request[5:8], "big")
    one = learn_shape(request, 0, header_end, kind)
    assert one is not None
    return lane_shape(one)


def shape_told(request: bytes) -> LaneShape:
    shape = told(request)
    assert shape is not None
    return shape


def test_shape_says_what_requests_have_in_common() -> None:
    for is_binary in (True, False):
        shape = shape_told(send(flag=2, e="3", f="1", h="7", j="2", is_binary=is_binary))
        assert shape.name == b"Orders\0"
        assert shape[4:] == (7, 1, 1, 2, True, True, True, False, False, False)
        assert shape.is_json != is_binary


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize(
    ("changed", "may_be"),
    [
        ({"f": "4"}, (False, True, False)),
        ({"f": "0"}, (True, True, False)),
        ({"f": "4096"}, (False, False, False)),
        ({"f": "4", "escrowWantsId": "true"}, (False, True, True)),
        ({"f": "4", "escrowWantsId": "1"}, (False, True, False)),
    ],
)
def test_shape_with_flags_of_halves_is_of_halves(
    changed: dict[str, str], may_be: tuple[bool, ...], *, is_binary: bool
) -> None:
    shape = shape_told(send(HALF, is_binary=is_binary, **changed))  # type: ignore[arg-type]
    assert (shape.may_be_plain, shape.may_be_half, shape.wants_id) == may_be


@pytest.mark.parametrize("is_binary", [True, False])
def test_what_is_one_message_by_its_code_alone_and_replies_have_no_shape_here(
    *, is_binary: bool
) -> None:
    assert told(send(m="true", is_binary=is_binary)) is None
    assert told(send(flag=1, is_binary=is_binary)) is None
    batch = send(code=Request.SEND_BATCH_MESSAGE, flag=1, is_binary=is_binary)
    assert told(batch) is None
    assert told(send(code=Request.SEND_REPLY_MESSAGE_V2, is_binary=is_binary)) is None


def test_batches_are_so_by_their_code_and_plain_or_nothing() -> None:
    def kinds(request: bytes) -> tuple[bool, bool, bool]:
        shape = shape_told(request)
        return shape.may_be_plain, shape.may_be_half, shape.is_batch

    for m in ("true", "false"):
        assert kinds(send(code=Request.SEND_BATCH_MESSAGE, m=m)) == (True, False, True)
    for flags, topic in (("4", "Orders"), ("4096", "Orders"), ("0", "x" * 200)):
        one = send(code=Request.SEND_BATCH_MESSAGE, m="true", f=flags, topic=topic)
        assert kinds(one) == (False, False, True)


JSON_ODDS = (
    (rb"\u0001", rb"\u0009"), (rb"\u0002WAIT", rb"\u0002W\u0041IT"), (rb"\u0001", b"\x01"),
    (b"UNIQ_KEY", rb"UNIQ_KE\\"), (b"true", rb"tr\"ue"), (b"true", "trü".encode()),
    (b"0A00", b"0A-0"), (b"0A00", b"0A<0"), (b"0A00", b"0A\x7f0"), (b"0A00", b"0A\xff0"),
    (b'"opaque":7', b'"opaque":-7'), (b'"opaque":7', b'"opaque":07'),
    (b'"opaque":7', b'"opaque":7.0'),
    (b'"opaque":7', b'"opaque":2147483647'), (b'"opaque":7', b'"opaque":2147483648'),
    (b'"opaque":7', b'"opaque": 7'), (b'"e":"0"', b'"e":"00"'), (b'"e":"0"', b'"e":"9"'),
    (b'"e":"0"', b'"e":""'), (b'"e":"0"', b'"e":"0","e":"1"'), (b'"e":"0"', b'"e":"1"'),
    (b'"g":"1', b'"g":"-1'), (b'"g":"1', b'"g":"0'), (b'"g":"1', b'"g":"11111111'),
    (b'"i":"', b'"i":"\\"'), (b'"extFields":{', b'"extFields":{"e":"1",'), (b"}", b"} "),
)  # fmt: skip


@pytest.mark.parametrize(("old", "new"), JSON_ODDS)
@pytest.mark.parametrize("code", [Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE])
def test_odd_header_in_json_among_plain_ones_makes_no_difference(
    code: int, old: bytes, new: bytes
) -> None:
    both, body = Both(), encode_batch([(0, b"b", b"UNIQ_KEY\x01a\x02")])
    plain = send(PLAIN, body, code=code, is_binary=False)
    both.feed((1, send()), (1, send(e="1")), (1, plain), (1, plain + plain))
    size = int.from_bytes(plain[4:8], "big")
    header = plain[8 : 8 + size]
    assert old in header
    header = header.replace(old, new, 1)
    sizes = (4 + len(header) + len(body)).to_bytes(4, "big") + len(header).to_bytes(4, "big")
    odd = sizes + header + body
    both.feed((1, plain + odd + plain))
    if not both.general.closed:
        both.feed((1, odd * 2), (1, odd + plain), (1, half(2) + odd + send()), (2, pull(0)))
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_lane_that_is_told_nonsense_of_a_shape_refuses_it(*, is_binary: bool) -> None:
    side, plain = Side(is_fast=True), send(is_binary=is_binary)
    lane = Watched(side)
    for _ in range(4):
        side.feed((1, plain * 2))
    (*before, shapes, plans, places, moment, count_max), _ = lane.calls["lay_out_sends"][-1]
    (shape,) = shapes
    assert requests_lane is not None
    refused: Any = requests_lane.lay_out_sends
    rest = plans, places, moment, count_max
    assert refused(*before, [shape], *rest) is not None
    pieces, order, *more = shape
    for odd in (
        (pieces[:-1], order, *more), (list(pieces), order, *more), (pieces, order[:-1], *more),
        (pieces, order[:-1] + b"\6", *more), (pieces, order[:-1] + order[:1], *more),
        (pieces, order[1:] + b"\0", *more) if is_binary else ((*pieces[:-1], b""), order, *more),
        (pieces, bytes([9]) + order[1:], *more), (pieces, None, *more),
        ((*pieces[:-1], "text"), order, *more), (pieces, order, 2, *more[1:]), shape[:-1],
        shape[:1], (pieces + (b"x",) * 4, order + bytes([5, 6, 7, 8]), *more),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, IndexError)):
            refused(*before, [odd], *rest)


def target_of(queue_id: int) -> TargetQueue:
    return TargetQueue("Orders", queue_id, sent_template({}, queue_id))


def test_queue_is_known_as_requests_name_it_until_something_changes() -> None:
    places, one, narrow = LaneQueues(), target_of(12), target_of(13)
    places.add_queue(one, is_read=True)
    (name,) = places.by_name
    assert name == b"Orders\x0012"
    target, tail, topic, queue_id, pieces, place = places.by_name[name]
    assert target is one
    assert (tail, topic, queue_id) == (None, "Orders", 12)
    assert place == b"REAL_TOPIC\x01Orders\x02REAL_QID\x0112\x02"
    assert len(pieces) == 11
    places.set_half_queue(None)
    assert places.of_halves is None
    assert places.by_half == {place: places.by_name[name]}
    places.add_queue(narrow, is_read=False)
    assert len(places.by_name) == 2
    assert narrow.place not in places.by_half
    places.clear()
    assert places.by_name == places.by_half == {}


def test_queues_that_are_known_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lane_input, "_PLACES_MAX", 3)
    places, counts = LaneQueues(), []
    for queue_id in range(5):
        places.add_queue(target_of(queue_id), is_read=True)
        counts.append((len(places.by_name), len(places.by_half)))
    assert counts == [(1, 1), (2, 2), (3, 3), (1, 1), (2, 2)]


def counts_of(lane: Watched) -> list[int]:
    """How many sends each call has served."""
    found: list[LaidOut | None] = lane.results("lay_out_sends")
    return [0 if one is None else one[8] for one in found]


def test_lane_serves_all_of_a_read_that_it_knows() -> None:
    side = Side(is_fast=True)
    lane = Watched(side)
    # Queues are made by the first, their ends are found for the second.
    for one in [send(e=str(queue)) for queue in range(4)] * 2 + [half(0), half(1)]:
        side.feed((1, one))
    lane.clear()
    side.feed((1, b"".join(send(e=str(number % 4)) for number in range(40))))
    side.feed((1, b"".join(half(number) for number in range(2, 20))))
    assert counts_of(lane) == [40, 18]


def test_lane_is_asked_again_once_after_a_request_that_taught_it_something() -> None:
    side = Side(is_fast=True)
    lane = Watched(side)
    side.feed((1, send()))
    assert counts_of(lane) == []  # there is no queue yet, so that nothing is learnt
    side.feed((1, send() * 3))
    assert counts_of(lane) == [0, 3]
    lane.clear()
    side.feed((1, send(PLAIN | {"new": "name"}) * 2 + send()))
    assert counts_of(lane) == [0, 3]


def test_connection_whose_requests_are_never_alike_learns_seldom() -> None:
    side = Side(is_fast=True)
    side.feed((1, send()))
    lane = Watched(side)
    for number in range(400):
        side.feed((1, send(c=f"Other{number}")))
    served = side.served_count
    assert served >= 32
    lane.clear()
    for number in range(400, 500):
        side.feed((1, send(c=f"Other{number}")))
    assert 15 <= side.served_count - served <= 25


def test_half_of_a_sender_that_wants_an_id_ends_a_call() -> None:
    side = Side(is_fast=True)
    lane = Watched(side)
    wants = send(HALF, f="4", escrowWantsId="true")
    for _ in range(2):
        side.feed((1, wants))
    lane.clear()
    side.feed((1, wants * 2 + send(HALF, f="4", escrowWantsId="true", flag=2)))
    assert counts_of(lane)[:2] == [1, 1]
    assert [one[10] is not None for one in lane.results("lay_out_sends")[:2]] == [True] * 2


def test_messages_that_a_shape_may_be_or_not_are_served_the_same_every_way() -> None:
    both = Both()
    both.feed((1, send()), (1, half(0)))
    for one in (
        send(f="4"), send(HALF, f="0"), send(HALF, f="8"), send(HALF, f="4", escrowWantsId="1"),
        send(HALF | {"TRAN_MSG": "TrUe"}, f="4"), send(HALF | {"TRAN_MSG": "TR\x15E"}, f="4"),
        send(HALF | {"PGROUP": "never seen"}, f="4"), send(PLAIN | {"KEYS": "a  b c d"}),
        send(PLAIN | {"KEYS": " a b c d e "}), send(PLAIN | {"TAGS": "t" * 200}),
    ):  # fmt: skip
        both.feed((1, one), (1, one * 3 + send() + one), (1, one + half(1) + one))
    both.end()


@pytest.mark.parametrize(
    ("name", "value", "taken_count"),
    [("pending_max", 5, 2), ("pending_max", 3, 0), ("rejects_transactions", True, 0)],
)
def test_no_more_halves_are_served_than_may_be_pending(
    name: str, value: object, taken_count: int
) -> None:
    """The setting changes while halves are served: the lane knows their queue by then."""
    both = Both()
    both.feed((1, send()), (1, half(0)), (1, half(1)), (1, half(2)))
    for side in both.sides:
        setattr(side.core.broker.settings, name, value)
    answers = both.feed((1, b"".join(half(number) for number in range(3, 9))))
    assert [answer.code for answer in answers].count(0) == taken_count
    both.feed((1, half(9)))
    both.end()


def test_stretches_fill_segments_and_meet_topics_that_go() -> None:
    both = Both()
    both.feed((1, send()), (1, send(topic="Bills")))
    for number in range(30):
        both.feed((1, send(body=b"x" * 3_000) * 3 + send(topic="Bills") * 2))
        if number % 7 == 6:
            both.feed((2, frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Bills"})))
    both.end()


class CountingEnds(Watched):
    """The lane, and how many ENDs each of its calls has served."""

    @property
    def counts(self) -> list[int]:
        found = self.results("lay_out_ends")
        return [0 if one is None else len(one[3]) // NOTE.size for one in found]


def watched(both: Both) -> CountingEnds:
    return CountingEnds(both.fast)


def begun(both: Both, count: int, **changed: str) -> list[Begun]:
    """Halves all of whose places have five digits; and their queue is known."""
    both.feed((1, send(body=b"x" * 10_000)), (1, send()), (1, send(e="1")), (1, half(0) * 2))
    return begin(both, *[half(100 + n, changed) for n in range(count)])


@pytest.mark.parametrize("flag", [0, 2])
@pytest.mark.parametrize("verdict", ["8", "12"])
def test_lane_serves_all_ends_of_a_read_that_it_knows(verdict: str, flag: int) -> None:
    both = Both()
    halves = begun(both, 8)
    lane = watched(both)
    both.feed((1, end(halves[0], verdict, flag=flag)))
    both.feed((1, b"".join(end(one, verdict, flag=flag) for one in halves[1:])), (2, pull(0)))
    assert lane.counts == [1, 7]
    both.end()


def test_ends_of_all_kinds_with_sends_between_them_are_served_in_their_order() -> None:
    both = Both()
    halves = begun(both, 40, TAGS="a", KEYS="k m")[8:]
    lane = watched(both)
    frames = [
        end(one, "8" if n % 3 else "12", flag=2 * (n % 4 == 0)) for n, one in enumerate(halves)
    ]
    for one in frames[:8]:
        both.feed((1, one))
    both.forget()
    lane.clear()
    both.feed(
        (1, b"".join([*frames[8:12], send(e="1"), half(7), *frames[12:], frames[13], half(8)]))
    )
    assert lane.counts == [4, 20]
    both.feed((2, pull(0)))
    both.end()


def test_no_more_halves_are_read_at_once_than_is_good_and_all_are_ended() -> None:
    both = Both()
    halves = begun(both, 150)
    halves.sort(key=lambda one: one.key[::-1])
    lane = watched(both)
    both.feed(*[(1, end(one)) for one in halves[:3]])
    lane.clear()
    both.feed((1, b"".join(end(one) for one in halves[3:])))
    assert max(lane.counts) <= 64
    assert sum(lane.counts) > 100
    both.end()


@pytest.mark.parametrize("between", [0, 3_000])
@pytest.mark.parametrize("size", [100, 1_500, 4_000])
def test_long_halves_and_such_that_lie_far_apart_are_ended_the_same(
    size: int, between: int
) -> None:
    both = Both()
    both.feed((1, send(body=b"x" * 10_000)), (1, half(0)), (1, half(0)))
    halves = []
    for number in range(14):
        key = f"0A000001ABCD18B4AAC20000{number:08X}"
        whole = send(HALF | {"UNIQ_KEY": key}, b"b" * size, f="4")
        halves += begin(both, whole)
        if between:
            both.feed((1, send(body=b"y" * between)))
    lane = watched(both)
    both.feed((1, end(halves[0])), (1, end(halves[1])))
    both.forget()
    both.feed((1, b"".join(end(one) for one in halves[2:])), (2, pull(0)))
    assert size > 1_500 or sum(lane.counts) >= 8
    both.end()


def test_lane_is_left_alone_for_a_while_where_it_serves_few() -> None:
    both = Both()
    halves = begun(both, 40, escrowChecker="db")
    for side in both.sides:  # what the sender's properties end with is not known any more
        side.core.broker.settings.is_traced = not side.core.broker.settings.is_traced
    lane = watched(both)
    both.feed((1, end(halves[0])))
    both.feed(*[(1, b"".join(end(one) for one in halves[n : n + 13])) for n in (1, 14, 27)])
    assert sum(lane.counts) == 0
    assert len(lane.counts) < 10
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_ends_that_are_more_than_a_verdict_have_no_shape_here(*, is_binary: bool) -> None:
    def state_of(*given: str, **changed: Any) -> bool | None:
        shape = told(end(one, *given, is_binary=is_binary, **changed), END)
        return None if shape is None else shape.is_commit

    one = Begun(5, 1_000, "0A00")
    assert state_of() is True
    assert state_of("12", flag=0) is False
    assert state_of("0") is None
    assert state_of(flag=1) is None
    assert state_of(fromTransactionCheck="true") is None
