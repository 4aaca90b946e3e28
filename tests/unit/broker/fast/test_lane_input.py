"""What the native lane is told. That it serves as plain Python does is held by test_fast_path and
test_short_ends (all sides of both.py), and by tests/fuzz/test_lane.py with odd bytes."""

from __future__ import annotations

from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.fast.lane_input import Places, end_shape_of, json_shape_of, shape_of
from escrowmq.broker.fast.short_ends import NOTE
from escrowmq.codec.batch import encode_batch
from escrowmq.codec.json_shapes import learn_json_send
from escrowmq.codec.request_shapes import learn_end, learn_send
from escrowmq.codec.sent_template import SentTemplate
from escrowmq.lane.native import (
    EndsLaidOut,
    EndsLane,
    LaidOut,
    LayOutSends,
    ends_lane,
    lay_out_sends,
)
from tests.unit.broker.both import (
    HALF,
    PLAIN,
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

HOST = bytes(8)


def told(request: bytes) -> Any:
    header_end = 8 + int.from_bytes(request[5:8], "big")
    shape = learn_send(request, 0, header_end)
    assert shape is not None
    return shape_of(shape)


def test_shape_says_where_queue_and_time_stand_and_what_the_wholemay_be() -> None:
    request = send(flag=2, e="3", f="1", h="7", j="2")
    front, suffix, topic, queue, queue_end, born, born_end, *rest = told(request)
    assert request.startswith(front)
    assert request[queue:queue_end] == b"3"
    assert request[born:born_end] == b"1700000000000"
    assert request.endswith(suffix + b"body")
    assert topic == b"Orders\0"
    assert rest == [7, 1, 1, 2, 2, True, True, False]


@pytest.mark.parametrize(
    ("whole", "may_be"),
    [
        (send(f="4"), (False, True)),
        (send(HALF, f="0"), (True, True)),
        (send(f="4096"), (False, False)),
        (send(HALF, f="4", escrowWantsId="true"), (False, False)),
        (send(HALF, f="4", escrowWantsId="1"), (False, True)),
    ],
)
def test_shape_with_flags_of_halves_is_of_halves(whole: bytes, may_be: tuple[bool, bool]) -> None:
    assert told(whole)[-3:] == (*may_be, False)


def test_what_is_one_message_by_its_code_alone_and_replies_have_no_shape_here() -> None:
    assert told(send(m="true")) is None
    assert told(send(flag=1)) is None
    assert told(send(code=Request.SEND_BATCH_MESSAGE, flag=1)) is None


def test_batches_are_so_by_their_code_and_plain_or_nothing() -> None:
    for m in ("true", "false"):
        assert told(send(code=Request.SEND_BATCH_MESSAGE, m=m))[-3:] == (True, False, True)
    for flags, topic in (("4", "Orders"), ("4096", "Orders"), ("0", "x" * 200)):
        one = send(code=Request.SEND_BATCH_MESSAGE, m="true", f=flags, topic=topic)
        assert told(one)[-3:] == (False, False, True)


def told_in_json(request: bytes) -> Any:
    header_end = 8 + int.from_bytes(request[4:8], "big")
    shape = learn_json_send(request, 8, header_end)
    assert shape is not None
    return json_shape_of(shape)


def test_shape_in_json_says_the_same() -> None:
    for more in ({}, {"code": Request.SEND_BATCH_MESSAGE}, {"flag": 1}, {"m": "true"}):
        changed: Any = {"flag": 2, "e": "3", "f": "1", "h": "7", "j": "2"} | more
        binary = told(send(**changed))
        found = told_in_json(send(is_binary=False, **changed))
        if binary is None:
            assert found is None
            continue
        pieces, order, *rest = found
        assert (len(pieces), sorted(order)) == (5, [0, 1, 2, 3])
        assert rest == [binary[2], *binary[7:]]


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


@pytest.mark.skipif(lay_out_sends is None, reason="the lane is not built, or left aside")
def test_lane_that_is_told_nonsense_of_a_shape_in_json_refuses_it() -> None:
    lane, given_last = lay_out_sends, list[tuple[Any, ...]]()
    assert lane is not None

    def lay_out(*given: Any) -> LaidOut | None:
        given_last[:] = [given]
        return lane(*given)

    side, plain = Side(is_short=True, lay_out=lay_out), send(is_binary=False)
    for _ in range(4):
        side.feed((1, plain * 2))
    ((*before, shapes, plans, places, moment),) = given_last
    (shape,) = [one for one in shapes if isinstance(one[0], tuple)]
    refused: Any = lane
    assert refused(*before, [shape], plans, places, moment) is not None
    pieces, order, *rest = shape
    for odd in (
        (pieces[:4], order, *rest), ((*pieces[:4], b""), order, *rest), (pieces, order[:3], *rest),
        (pieces, b"\0\1\2\2", *rest), (pieces, b"\0\1\2\4", *rest), (pieces, None, *rest),
        ((*pieces[:4], "text"), order, *rest), shape[:-1], shape[:1],
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError, IndexError)):
            refused(*before, [odd], plans, places, moment)


def test_queue_is_known_as_requests_name_it_until_something_changes() -> None:
    places = Places()
    replies = SentTemplate({}, HOST, 12)
    places.note("target", "Orders", 12, None, replies, b"place", is_read=True)
    (name,) = places.by_name
    assert name == b"Orders\x0012"
    target, tail, topic, queue_id, pieces, place = places.by_name[name]
    assert (target, tail, topic, queue_id, place) == ("target", None, "Orders", 12, b"place")
    assert len(pieces) == 10
    places.note_halves(None)
    assert places.of_halves is None
    assert places.by_half == {b"place": places.by_name[name]}
    places.note("target", "Orders", 13, None, replies, b"narrow", is_read=False)
    assert len(places.by_name) == 2
    assert b"narrow" not in places.by_half
    places.clear()
    assert places.by_name == places.by_half == {}


class Counting:
    """The lane, and how many requests it has served."""

    def __init__(self, lay_out: LayOutSends) -> None:
        self._lay_out = lay_out
        self.counts: list[int] = []

    def __call__(self, *given: Any) -> LaidOut | None:
        found = self._lay_out(*given)
        self.counts.append(0 if found is None else found[8])
        return found


@pytest.mark.skipif(lay_out_sends is None, reason="the lane is not built, or left aside")
def test_lane_serves_all_of_a_read_that_it_knows() -> None:
    assert lay_out_sends is not None
    lane = Counting(lay_out_sends)
    side = Side(is_short=True, lay_out=lane)
    # Queues are made by the first, their ends are found for the second.
    for one in [send(e=str(queue)) for queue in range(4)] * 2 + [half(0), half(1)]:
        side.feed((1, one))
    lane.counts.clear()
    side.feed((1, b"".join(send(e=str(number % 4)) for number in range(40))))
    side.feed((1, b"".join(half(number) for number in range(2, 20))))
    assert lane.counts == [40, 18]


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


class CountingEnds:
    """The lane of ENDs, and how many it has served."""

    def __init__(self, lane: EndsLane) -> None:
        self._lane = lane
        self.counts: list[int] = []

    def lay_out(self, *given: Any) -> EndsLaidOut | None:
        found = self._lane.lay_out(*given)
        self.counts.append(0 if found is None else len(found[3]) // NOTE.size)
        return found

    def watch(self, side: Side) -> None:
        fast_path = side.core.remoting.fast_path
        assert fast_path is not None
        fast_path.ends_lane = EndsLane(self._lane.find, self.lay_out)


def watched(both: Both) -> CountingEnds:
    assert ends_lane is not None
    lane = CountingEnds(ends_lane)
    lane.watch(both.sides[2])
    return lane


needs_lane = pytest.mark.skipif(ends_lane is None, reason="the lane is not built, or left aside")


def begun(both: Both, count: int, **changed: str) -> list[Begun]:
    """Halves all of whose places have five digits; and their queue is known."""
    both.feed((1, send(body=b"x" * 10_000)), (1, send()), (1, send(e="1")), (1, half(0) * 2))
    return begin(both, *[half(100 + n, changed) for n in range(count)])


@needs_lane
@pytest.mark.parametrize("flag", [0, 2])
@pytest.mark.parametrize("verdict", ["8", "12"])
def test_lane_serves_all_ends_of_a_read_that_it_knows(verdict: str, flag: int) -> None:
    both = Both()
    halves = begun(both, 8)
    lane = watched(both)
    both.feed((1, end(halves[0], verdict, flag=flag)))
    both.feed((1, b"".join(end(one, verdict, flag=flag) for one in halves[1:])), (2, pull(0)))
    assert lane.counts == [7]
    both.end()


@needs_lane
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
    lane.counts.clear()
    both.feed(
        (1, b"".join([*frames[8:12], send(e="1"), half(7), *frames[12:], frames[13], half(8)]))
    )
    assert lane.counts == [4, 20]
    both.feed((2, pull(0)))
    both.end()


@needs_lane
def test_no_more_halves_are_read_at_once_than_is_good_and_all_are_ended() -> None:
    both = Both()
    halves = begun(both, 150)
    halves.sort(key=lambda one: one.key[::-1])
    lane = watched(both)
    both.feed(*[(1, end(one)) for one in halves[:3]])
    lane.counts.clear()
    both.feed((1, b"".join(end(one) for one in halves[3:])))
    assert max(lane.counts) <= 64
    assert sum(lane.counts) > 100
    both.end()


@needs_lane
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


@needs_lane
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


def test_ends_that_are_more_than_a_verdict_have_no_shape_here() -> None:
    def told_of_end(data: bytes) -> bool:
        shape = learn_end(data, 0, len(data))
        assert shape is not None
        return end_shape_of(shape) is not None

    one = Begun(5, 1_000, "0A00")
    assert told_of_end(end(one))
    assert told_of_end(end(one, "12", flag=0))
    assert not told_of_end(end(one, "0"))
    assert not told_of_end(end(one, flag=1))
    assert not told_of_end(end(one, fromTransactionCheck="true"))
