"""The plain face's short way through a transaction: no task on the event loop's thread, and the
same ends."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.client import portal as portals
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    BrokerBusy,
    HalfNotSafe,
    InvalidMessage,
    OutcomeContradicted,
    OutcomeUnknown,
    UsageError,
)

from .peer import DEADLINE_S, Link, ends, stored
from .test_plain_producer import Place

SEND = Request.SEND_MESSAGE_V2
END = Request.END_TRANSACTION
Answer = Callable[[Link, Command], None]


def signed(link: Link, command: Command) -> None:
    stored(link, command, signed_id="id-1")


@pytest.fixture
def place() -> Iterator[Place]:
    made = Place()
    made.broker.answers[SEND] = signed
    yield made
    made.close()


@pytest.fixture
def producer(place: Place) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(place.names.address, group="PG") as made:
        made.send("T", b"warm")
        yield made


def outcomes(place: Place) -> list[str]:
    return [end["commitOrRollback"] for end in ends(place.broker)]


def in_turn(*answers: Answer) -> Answer:
    left = list(answers)

    def answer(link: Link, command: Command) -> None:
        left.pop(0)(link, command)

    return answer


def refuse(code: int, **ext: str) -> Answer:
    return lambda link, command: link.reply(command, code, ext=ext, remark="planted")


def cut(link: Link, command: Command) -> None:
    link.transport.abort()


def test_a_transaction_over_a_known_route_makes_no_task(
    place: Place, producer: escrowmq.Producer
) -> None:
    made: list[object] = []

    def count_task(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
        made.append(work)
        return asyncio.Task(work, loop=loop, **more)

    loop = producer._portal._loop
    loop.set_task_factory(count_task)
    for _ in range(5):
        with producer.transaction("T", b"x", keys=["k"]) as tx:
            assert tx.id == "id-1"
        assert tx.outcome is escrowmq.Outcome.COMMIT
    with producer.transaction("T", b"x") as tx:
        tx.rollback()
    producer.transaction("T", b"x").begin().settle(escrowmq.Outcome.COMMIT)
    loop.set_task_factory(None)
    assert made == []
    assert outcomes(place) == ["8"] * 5 + ["12", "8"]
    half = parse_properties((place.sends()[-1].ext or {})["i"])
    assert (half["TRAN_MSG"], half["PGROUP"]) == ("true", "PG")


def test_a_half_that_is_refused_is_sent_again_and_then_told(
    place: Place, producer: escrowmq.Producer
) -> None:
    place.broker.answers[SEND] = in_turn(refuse(2), cut, signed)
    with producer.transaction("T", b"x") as tx:
        pass
    assert tx.outcome is escrowmq.Outcome.COMMIT
    place.broker.answers[SEND] = refuse(2)
    ran: list[int] = []
    with pytest.raises(BrokerBusy, match="planted"), producer.transaction("T", b"x"):
        ran.append(1)
    with pytest.raises(InvalidMessage), producer.transaction("T", b""):
        ran.append(2)
    assert ran == []
    assert outcomes(place) == ["8"]


def test_an_end_is_told_again_at_our_brokers_and_what_they_say_is_raised(
    place: Place, producer: escrowmq.Producer
) -> None:
    place.broker.answers[END] = in_turn(
        cut,
        refuse(2),
        lambda link, command: link.reply(command),
        refuse(201, escrowOutcome="rolled_back"),
        refuse(1),
    )
    with producer.transaction("T", b"x") as tx:
        pass
    assert tx.outcome is escrowmq.Outcome.COMMIT
    with pytest.raises(OutcomeContradicted, match="rolled_back"), producer.transaction("T", b"x"):
        pass
    with pytest.raises(OutcomeUnknown, match="planted"), producer.transaction("T", b"x") as open_:
        pass
    assert open_.outcome is escrowmq.Outcome.UNKNOWN
    assert producer.unconfirmed_count == 2


def test_behind_the_databases_decision_nothing_is_raised(
    place: Place, producer: escrowmq.Producer
) -> None:
    place.broker.answers[END] = refuse(1)
    with producer.transaction("T", b"x") as tx:
        tx.database_decides()
    assert isinstance(tx.error, OutcomeUnknown)


def test_a_half_that_is_not_safe_is_rolled_back_before_anything_runs(
    place: Place, producer: escrowmq.Producer
) -> None:
    place.broker.answers[SEND] = lambda link, command: stored(link, command, code=10)
    ran: list[int] = []
    with pytest.raises(HalfNotSafe), producer.transaction("T", b"x"):
        ran.append(1)
    assert ran == []
    assert outcomes(place) == ["12"]


def test_a_transaction_begins_and_ends_once(place: Place, producer: escrowmq.Producer) -> None:
    tx = producer.transaction("T", b"x").begin()
    with pytest.raises(UsageError, match="begins once"):
        tx.begin()
    tx.settle(escrowmq.Outcome.COMMIT)
    with pytest.raises(UsageError, match="an Outcome is expected"):
        producer.transaction("T", b"x").begin().settle(8)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="has ended"):
        tx.settle(escrowmq.Outcome.COMMIT)
    with producer.transaction("T", b"x") as settled:
        settled.settle(escrowmq.Outcome.ROLLBACK)
    with producer.transaction("T", b"x") as detached:
        assert detached.detach() == "id-1"
    with pytest.raises(KeyError), producer.transaction("T", b"x"):
        raise KeyError("planted")
    assert outcomes(place) == ["8", "12", "12"]


def test_a_half_whose_answer_comes_after_an_interrupt_is_rolled_back(
    place: Place, producer: escrowmq.Producer
) -> None:
    held: list[tuple[Link, Command]] = []
    place.broker.answers[SEND] = lambda link, command: held.append((link, command))
    inner = producer._inner.transaction("T", b"x")

    async def begin_and_leave() -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks: list[asyncio.Task[Any]] = []

        def finish(result: Any, error: Any = None, go_on: Any = None) -> None:
            tasks.append(asyncio.ensure_future(go_on()))
            tasks[0].add_done_callback(lambda _: over.set_result(None))

        assert inner.try_begin(finish)
        inner.abandon()
        place.answer_held(held)
        await over

    producer._portal.call(begin_and_leave())
    assert outcomes(place) == ["12"]


def test_a_commit_that_nobody_waits_for_does_not_wait_for_the_clients_thread(place: Place) -> None:
    with escrowmq.Producer(place.names.address, group="PG", confirms_commits=False) as producer:
        is_left = threading.Event()
        held: list[bool] = []
        with producer.transaction("T", b"x") as tx:
            shared = portals._shared.portal
            assert shared is not None
            shared.post(lambda: held.append(is_left.wait(DEADLINE_S)))
        is_left.set()
        with pytest.raises(UsageError, match="ended"):
            tx.detach()
        producer.flush()
        assert held == [True]
        assert tx.outcome is escrowmq.Outcome.COMMIT
        with producer.transaction("T", b"x") as tx:
            tx.rollback()
        assert tx.outcome is escrowmq.Outcome.ROLLBACK  # which is waited for
        tx = producer.transaction("T", b"x").begin()
        tx.settle(escrowmq.Outcome.COMMIT)
        producer.flush()
        assert tx.outcome is escrowmq.Outcome.COMMIT
        assert outcomes(place) == ["8", "12", "8"]
