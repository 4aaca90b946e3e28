from __future__ import annotations

import asyncio
import contextlib
import functools
from typing import Any

import pytest

from escrowmq.aio import Message, Outcome, Producer
from escrowmq.base.codes import Request, Response
from escrowmq.client.outbox_messages import MESSAGES_MAX
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    HalfNotSafe,
    InvalidMessage,
    OutcomeUnknown,
    PermissionDenied,
    SendFailed,
    UsageError,
)

from .peer import Peer, a_peer, a_place, ends, stored
from .test_checking import ask

SEND = Request.SEND_MESSAGE_V2
END = Request.END_TRANSACTION


def run(test: Any) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def has_ends(broker: Peer, count: int) -> bool:
    return len(ends(broker)) == count


def halves(broker: Peer) -> list[dict[str, str]]:
    return [
        parse_properties((command.ext or {})["i"])
        for command in broker.requests
        if command.code == SEND
    ]


def test_one_message_is_a_half_of_its_own_whose_id_is_the_markers_key() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")])
            marked.leave_to_marker()
            assert not ends(broker)
            await marked.report_commit_and_wait()
            (half,) = halves(broker)
            assert half["UNIQ_KEY"] == marked.key
            assert half["escrowMarker"] == f"db:{marked.key}"
            assert "escrowTransaction" not in half
            assert [end["commitOrRollback"] for end in ends(broker)] == ["8"]
            assert (marked.outcome, marked.error) == (Outcome.COMMIT, None)

    run(go)


def test_several_messages_are_one_transaction_of_our_broker_in_their_order() -> None:
    async def go() -> None:
        async with (
            a_place("T", "U", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            marked = producer.marked_messages("db")
            await marked.send([Message("TU"[n % 2], b"x", keys=str(n)) for n in range(50)])
            marked.leave_to_marker()
            await marked.report_commit_and_wait()
            assert {half["escrowTransaction"] for half in halves(broker)} == {marked.key}
            assert [half["KEYS"] for half in halves(broker)] == [str(n) for n in range(50)]
            (end,) = ends(broker)
            assert (end["escrowCount"], end["escrowId"]) == ("50", "id-1")

    run(go)


def test_messages_are_checked_as_they_would_be_sent_without_sending_them() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", body_size_max=9) as producer,
        ):
            marked = producer.marked_messages("db")
            good = Message("T", b"x" * 9, properties={"a": "b"})
            marked.validate([good, good])
            for bad, text in (
                (Message("T", b"x" * 10), "at most 9 are allowed"),
                (Message("T", b"x", properties={"a": "b\x02"}), "0x01 or 0x02"),
                (Message("T", b"x", properties={"a": "x" * 32_750}), "properties have"),
            ):
                with pytest.raises(InvalidMessage, match=text):
                    marked.validate([good, bad])
            assert not halves(broker)

    run(go)


@pytest.mark.parametrize(("repeats", "attempts"), [(True, 2), (False, 1)])
def test_a_message_whose_answer_is_lost_is_not_stored_twice_where_once_is_promised(
    attempts: int, *, repeats: bool
) -> None:
    """Both halves had the marker's key, so that it committed both."""

    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            answer = broker.answers[SEND]

            def lose_first(link: Any, command: Any) -> None:
                if len(halves(broker)) == 1:
                    link.transport.abort()
                else:
                    answer(link, command)

            broker.answers[SEND] = lose_first
            marked = producer.marked_messages("db")
            if not repeats:
                marked = marked.without_resends()
            with contextlib.nullcontext() if repeats else pytest.raises(SendFailed):
                await marked.send([Message("T", b"x")])
            assert len(halves(broker)) == attempts
            assert "escrowTransaction" not in halves(broker)[0]
            assert marked.verdict is (Outcome.UNKNOWN if repeats else Outcome.ROLLBACK)

    run(go)


def test_a_foreign_broker_is_told_the_end_of_each_message() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")] * 3)
            marked.leave_to_marker()
            await marked.report_commit_and_wait()
            assert len(halves(broker)) == len(ends(broker)) == 3
            assert all("escrowCount" not in end for end in ends(broker))

    run(go)


def test_when_one_message_cannot_be_stored_the_others_are_rolled_back() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            count = iter(range(9))

            def answer(link: Any, command: Any) -> None:
                if next(count) == 2:
                    link.reply(command, Response.NO_PERMISSION, remark="planted")
                else:
                    stored(link, command)

            broker.answers[SEND] = answer
            marked = producer.marked_messages("db")
            with pytest.raises(PermissionDenied, match="planted"):
                await marked.send([Message("T", b"x")] * 4)
            await broker.until(lambda: len(ends(broker)) == 3)
            assert {end["commitOrRollback"] for end in ends(broker)} == {"12"}
            assert marked.verdict is Outcome.ROLLBACK

    run(go)


def test_a_half_on_one_disk_less_than_asked_for_is_rolled_back() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[SEND] = lambda link, command: stored(link, command, code=10)
            marked = producer.marked_messages("db")
            with pytest.raises(HalfNotSafe):
                await marked.send([Message("T", b"x")])
            await broker.until(lambda: len(ends(broker)) == 1)

    run(go)


def test_a_cancelled_send_is_rolled_back() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[SEND] = lambda link, command: None
            marked = producer.marked_messages("db")
            sending = asyncio.create_task(marked.send([Message("T", b"x")]))
            await broker.until(lambda: SEND in broker.codes())
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            # Perhaps it is stored all the same: whoever asks is told.
            ask(broker.links[0], UNIQ_KEY=marked.key, escrowMarker=f"db:{marked.key}")
            await broker.until(lambda: ends(broker))
            assert ends(broker)[0]["commitOrRollback"] == "12"

    run(go)


def test_a_cancelled_commit_is_told_all_the_same() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            held: list[Any] = []
            broker.answers[END] = lambda link, command: held.append((link, command))
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")])
            marked.leave_to_marker()
            committing = asyncio.create_task(marked.report_commit_and_wait())
            await broker.until(lambda: held)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            link, command = held[0]
            link.reply(command)
            while marked.outcome is not Outcome.COMMIT:
                await asyncio.sleep(0)

    run(go)


def test_a_commit_that_is_not_confirmed_is_told_to_who_asks_and_raises_nothing() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[END] = lambda link, command: link.reply(command, 1, remark="planted")
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")])
            marked.leave_to_marker()
            await marked.report_commit_and_wait()
            assert marked.outcome is Outcome.UNKNOWN
            assert isinstance(marked.error, OutcomeUnknown)
            assert producer.unconfirmed_count == 1
            del broker.answers[END]
            ask(broker.links[0], UNIQ_KEY=marked.key, escrowMarker=f"db:{marked.key}")
            await broker.until(lambda: len(ends(broker)) == 2)
            assert ends(broker)[1]["commitOrRollback"] == "8"

    run(go)


def test_an_open_one_says_so_and_one_that_was_left_is_asked_of_the_database() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            producer.add_database_check(lambda message: Outcome.COMMIT)
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")])
            marker = {"UNIQ_KEY": marked.key, "escrowMarker": f"db:{marked.key}"}
            ask(broker.links[0], **marker)
            await broker.until(lambda: len(ends(broker)) == 1)
            marked.leave_to_marker()
            ask(broker.links[0], **marker)
            await broker.until(lambda: len(ends(broker)) == 2)
            found = [(end["commitOrRollback"], end.get("escrowOpen")) for end in ends(broker)]
            assert found == [("0", "true"), ("8", None)]

    run(go)


def test_messages_of_several_brokers_end_at_each() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, one),
            a_peer() as other,
            Producer(names.address, group="PG") as producer,
        ):
            other.answers[SEND] = lambda link, command: stored(link, command, signed_id="id-2")
            second = Peer()
            second.be_name_server(other.address, topics=("U",), broker="other")
            route_of_first = names.answers[Request.GET_ROUTEINFO_BY_TOPIC]

            def route(link: Any, command: Any) -> None:
                is_second = (command.ext or {})["topic"] == "U"
                asked = second.answers[Request.GET_ROUTEINFO_BY_TOPIC]
                (asked if is_second else route_of_first)(link, command)

            names.answers[Request.GET_ROUTEINFO_BY_TOPIC] = route
            marked = producer.marked_messages("db")
            await marked.send([Message(topic, b"x") for topic in "TUTU"])
            marked.leave_to_marker()
            await marked.report_commit_and_wait()
            assert (len(halves(one)), len(halves(other))) == (2, 2)
            assert [end["escrowId"] for end in ends(one) + ends(other)] == ["id-1", "id-2"]

    run(go)


def test_too_many_messages_are_refused_before_any_is_sent() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            marked = producer.marked_messages("db")
            with pytest.raises(UsageError, match="Put more into each"):
                await marked.send([Message("T", b"x")] * (MESSAGES_MAX + 1))
            assert SEND not in broker.codes()

    run(go)


def test_a_closed_producer_leaves_the_end_to_the_marker() -> None:
    async def go() -> None:
        async with a_place("T") as (names, _):
            async with Producer(names.address, group="PG") as producer:
                marked = producer.marked_messages("db")
                await marked.send([Message("T", b"x")])
                marked.leave_to_marker()
            await marked.report_commit_and_wait()
            assert marked.outcome is Outcome.UNKNOWN

    run(go)


def test_a_close_waits_until_the_broker_has_answered_or_its_time_is_over() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            producer = await Producer(names.address, group="PG", timeout_ms=1_000).open()
            broker.answers[END] = lambda link, command: None
            marked = producer.marked_messages("db")
            await marked.send([Message("T", b"x")])
            marked.leave_to_marker()
            marked.report_commit()
            await producer.close()
            assert ends(broker)
            assert marked.outcome is Outcome.UNKNOWN
            assert isinstance(marked.error, OutcomeUnknown)

    run(go)


def test_messages_that_are_abandoned_on_their_way_are_rolled_back_once_all_are_stored() -> None:
    """The marker could not be inserted: what is on its way must not wait for a check."""

    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            held: list[tuple[Any, Any]] = []
            broker.answers[SEND] = lambda link, command: held.append((link, command))
            for count in (1, 3):
                marked = producer.marked_messages("db")
                marked.start_storing([Message("T", b"x")] * count)
                await broker.until(lambda: held)
                marked.abandon()
                assert marked.verdict is Outcome.ROLLBACK
                expected = len(ends(broker)) + 1
                broker.answers[SEND] = lambda link, command: stored(link, command, signed_id="id-1")
                for link, command in held:
                    stored(link, command, signed_id="id-1")
                await marked.wait_until_stored()
                await broker.until(functools.partial(has_ends, broker, expected))
                assert ends(broker)[-1]["commitOrRollback"] == "12"
                assert ends(broker)[-1]["msgId"] == halves(broker)[-count]["UNIQ_KEY"]
                held.clear()
                broker.answers[SEND] = lambda link, command: held.append((link, command))
            assert len(ends(broker)) == 2

    run(go)
