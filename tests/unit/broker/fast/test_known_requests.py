"""What is known of the requests of one connection, and how much of it."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Request
from escrowmq.broker.fast.known_requests import CREDIT_MAX, KnownRequests
from escrowmq.codec.request_shapes import END, SEND
from tests.unit.broker.both import HALF, Begun, end, pull, send


def learn(known: KnownRequests, request: bytes) -> bool:
    header_end = 8 + int.from_bytes(request[5:8], "big")
    return known.learn_shape(request, 0, header_end, SEND) is not None


@pytest.mark.parametrize("is_binary", [True, False])
def test_sends_and_ends_may_be_short_and_nothing_else_is(*, is_binary: bool) -> None:
    known, half = KnownRequests(), Begun(5, 1_000, "0A00")
    batch = send(code=Request.SEND_BATCH_MESSAGE, is_binary=is_binary)
    for request in (send(is_binary=is_binary), batch, end(half, is_binary=is_binary)):
        assert known.may_take_fast_path(b"before" + request, 6)
        assert not known.may_take_fast_path(b"before" + request, 5)
    assert not known.may_take_fast_path(pull(0), 0)
    assert not known.may_take_fast_path(
        send(code=Request.SEND_REPLY_MESSAGE_V2, is_binary=is_binary), 0
    )


def test_ends_that_cannot_be_served_are_left_alone_for_a_while_and_sends_are_not() -> None:
    known, half = KnownRequests(), Begun(5, 1_000, "0A00")
    known.backoff.record_attempt(has_paid=False)
    assert known.may_take_fast_path(send(), 0)
    assert [known.may_take_fast_path(end(half), 0) for _ in range(3)] == [False, True, True]


def test_a_connection_teaches_some_shapes_at_once_and_then_one_in_five_requests() -> None:
    known = KnownRequests()
    assert all(known.pay_for_learning() for _ in range(CREDIT_MAX // 4))
    assert [known.pay_for_learning() for _ in range(10)] == [*[False] * 4, True] * 2
    known.add_credit(CREDIT_MAX + 1)
    assert sum(known.pay_for_learning() for _ in range(CREDIT_MAX // 4 + 1)) == CREDIT_MAX // 4


def test_a_shape_is_kept_once_and_the_newest_eight_are() -> None:
    known = KnownRequests()
    for _ in range(2):
        assert learn(known, send())
    assert len(known.sends.shapes) == len(known.sends.lane_shapes) == 1
    for number in (*range(9), 8, 7):
        assert learn(known, send(c=f"Other{number}"))
    assert len(known.sends.shapes) == len(known.sends.lane_shapes) == 8
    newest, *_, oldest = [b"".join(one.pieces) for one in known.sends.shapes]
    assert b"Other8" in newest
    assert b"Other1" in oldest


def test_what_has_no_shape_is_not_learnt() -> None:
    known = KnownRequests()
    assert not learn(known, send(flag=1))
    assert not known.sends.shapes
    known.credit = 0
    assert not learn(known, send())


def test_a_connection_that_wants_ids_once_wants_them_from_then_on() -> None:
    known = KnownRequests()
    learn(known, send(HALF, f="4"))
    assert not known.wants_ids
    learn(known, send(HALF, f="4", escrowWantsId="true"))
    learn(known, send(HALF, f="4", c="another"))
    assert known.wants_ids


def test_ends_are_kept_apart_from_sends() -> None:
    known, request = KnownRequests(), end(Begun(5, 1_000, "0A00"))
    header_end = 8 + int.from_bytes(request[5:8], "big")
    assert known.learn_shape(request, 0, header_end, END) is not None
    assert (len(known.ends.shapes), len(known.sends.shapes)) == (1, 0)
