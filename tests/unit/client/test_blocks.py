"""What becomes of a transaction whose block is open, long, interrupted, or past its database's
commit."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from escrowmq.aio import Interceptor, Outcome, Producer, ReceivedMessage
from escrowmq.base.codes import Request
from escrowmq.client.core import verdicts
from escrowmq.client.core.verdicts import KnownOutcomes
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    ConnectionLost,
    OutcomeContradicted,
    OutcomeUnknown,
    SendFailed,
    TransactionBroken,
    UsageError,
)

from .peer import Link, Peer, a_place, ends, stored
from .test_checking import ask

SEND = Request.SEND_MESSAGE_V2
END = Request.END_TRANSACTION


class Database:
    """Keys that are committed, and a check that reads them."""

    def __init__(self) -> None:
        self.committed: set[str] = set()
        self.asked: list[str] = []

    def check(self, message: ReceivedMessage) -> Outcome:
        self.asked.append(message.message_id)
        return Outcome.ROLLBACK


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 30))


def half_properties(broker: Peer) -> dict[str, str]:
    sent = [command for command in broker.requests if command.code == SEND]
    return parse_properties((sent[-1].ext or {})["i"])


def told_by_block(broker: Peer) -> bool:
    return ends(broker)[-1]["fromTransactionCheck"] == "false"


async def answer_to_a_check(broker: Peer, **properties: str) -> str:
    """What a broker is told when it asks about the half that was sent last."""
    before = len(ends(broker))
    names = ("UNIQ_KEY", "PGROUP", "escrowTransaction")
    found = half_properties(broker)
    ask(broker.links[0], **{name: found[name] for name in names if name in found}, **properties)
    await broker.until(lambda: len(ends(broker)) > before)
    end = ends(broker)[before]
    assert end["fromTransactionCheck"] == "true"
    assert (end.get("escrowOpen") == "true") == (end["commitOrRollback"] == "0")
    return end["commitOrRollback"]


@pytest.mark.parametrize("is_bundle", [False, True])
def test_an_open_block_answers_checks_by_itself_and_an_ended_one_says_its_outcome(
    is_bundle: bool,
) -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG", check=database.check) as producer,
        ):
            given = () if is_bundle else ("T", b"x")
            async with producer.transaction(*given) as tx:
                if is_bundle:
                    await tx.send("T", b"x")
                for _ in range(3):
                    assert await answer_to_a_check(broker) == "0"
            assert await answer_to_a_check(broker) == "8"
            assert tx.outcome is Outcome.COMMIT
            assert not database.asked

    run(go())


def test_a_block_that_was_dropped_detached_or_left_open_is_asked_about() -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", check=database.check) as producer,
        ):
            tx = await producer.transaction("T", b"x").begin()
            assert await answer_to_a_check(broker) == "0"
            del tx
            gc.collect()
            assert await answer_to_a_check(broker) == "12"
            async with producer.transaction("T", b"x") as tx:
                tx.detach()
                assert await answer_to_a_check(broker) == "12"
            async with producer.transaction("T", b"x") as tx:
                tx.unknown()
                assert await answer_to_a_check(broker) == "0"
            await broker.until(lambda: ends(broker)[-1]["fromTransactionCheck"] == "false")
            assert await answer_to_a_check(broker) == "12"
            assert tx.outcome is Outcome.UNKNOWN
            assert len(database.asked) == 3

    run(go())


@pytest.mark.parametrize("error", [KeyError("k"), asyncio.CancelledError(), KeyboardInterrupt()])
def test_what_is_raised_once_the_database_decides_leaves_it_to_the_check(
    error: BaseException,
) -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", check=database.check) as producer,
        ):
            for way in ("database_decides", "unknown"):
                tx = producer.transaction("T", b"x")
                await tx.__aenter__()
                getattr(tx, way)()
                await tx.__aexit__(type(error), error, None)
                assert tx.outcome is Outcome.UNKNOWN
                await broker.until(lambda: ends(broker)[-1:] and told_by_block(broker))
                assert await answer_to_a_check(broker) == "12"
            assert [end["commitOrRollback"] for end in ends(broker)] == ["0", "12", "0", "12"]
            assert len(database.asked) == 2

    run(go())


@pytest.mark.parametrize("error", [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit()])
def test_an_interrupt_or_a_cancellation_is_never_told_as_a_rollback(error: BaseException) -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            tx = producer.transaction("T", b"x")
            await tx.__aenter__()
            await tx.__aexit__(type(error), error, None)
            await broker.until(lambda: ends(broker))
            assert ends(broker)[0]["commitOrRollback"] == "0"

    run(go())


class Ears(Interceptor):
    def __init__(self) -> None:
        self.heard: list[BaseException | None] = []

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        self.heard.append(error)


@pytest.mark.parametrize(
    ("code", "kind", "outcome"),
    [
        (1, OutcomeUnknown, Outcome.UNKNOWN),
        (201, OutcomeContradicted, Outcome.ROLLBACK),
        (200, OutcomeContradicted, Outcome.COMMIT),
    ],
)
def test_behind_a_database_that_committed_an_end_that_fails_is_kept_and_not_raised(
    code: int, kind: type[Exception], outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    async def go() -> None:
        ears = Ears()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", interceptors=[ears]) as producer,
        ):
            broker.answers[END] = lambda link, command: link.reply(command, code, remark="planted")
            async with producer.transaction("T", b"x") as tx:
                tx.database_decides()
            assert isinstance(tx.error, kind)
            assert tx.outcome is outcome
            assert ears.heard == [tx.error]
            assert producer.unconfirmed_count == 1
            assert str(tx.error) in caplog.messages
            with pytest.raises(kind):
                async with producer.transaction("T", b"x"):
                    pass
            assert producer.unconfirmed_count == 2

    with caplog.at_level(logging.WARNING):
        run(go())


def test_an_outcome_that_the_broker_did_not_hear_answers_its_check() -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", check=database.check) as producer,
        ):
            broker.answers[END] = lambda link, command: link.reply(command, 1, remark="page cache")
            with pytest.raises(OutcomeUnknown):
                async with producer.transaction("T", b"x"):
                    pass
            gc.collect()
            assert await answer_to_a_check(broker) == "8"
            with pytest.raises(KeyError):
                async with producer.transaction("T", b"x"):
                    raise KeyError
            gc.collect()
            assert await answer_to_a_check(broker) == "12"
            assert not database.asked

    run(go())


def test_a_cancelled_end_is_remembered() -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", check=database.check) as producer,
        ):
            broker.answers[END] = lambda link, command: None

            async def order() -> None:
                async with producer.transaction("T", b"x"):
                    pass

            task = asyncio.create_task(order())
            await broker.until(lambda: ends(broker))
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await answer_to_a_check(broker) == "8"
            assert not database.asked

    run(go())


def test_a_half_whose_sending_was_cancelled_or_lost_is_rolled_back_by_itself() -> None:
    async def go() -> None:
        database = Database()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", check=database.check, retries=0) as producer,
        ):
            broker.answers[SEND] = lambda link, command: None
            task = asyncio.create_task(producer.transaction("T", b"x").begin())
            await broker.until(lambda: SEND in broker.codes())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await answer_to_a_check(broker) == "12"
            broker.answers[SEND] = lambda link, command: link.transport.abort()
            with pytest.raises(SendFailed) as failed:
                await producer.transaction("T", b"y").begin()
            assert isinstance(failed.value.__cause__, ConnectionLost)
            await broker.until(lambda: broker.links)
            assert await answer_to_a_check(broker) == "12"
            assert not database.asked

    run(go())


def test_a_block_that_never_begins_is_rolled_back_at_once_where_its_half_is_known() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            tx = await producer.transaction("T", b"x").begin()
            tx.abandon()  # as the plain face does when an interrupt comes behind the answer
            await broker.until(lambda: ends(broker))
            assert ends(broker)[0]["commitOrRollback"] == "12"

    run(go())


@pytest.mark.parametrize("given", [1, 0.2, 30])
def test_a_transaction_asks_for_a_later_first_check(given: float) -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            async with producer.transaction("T", b"x", check_after=given):
                pass
            told = half_properties(broker)["CHECK_IMMUNITY_TIME_IN_SECONDS"]
            assert told == str(max(1, int(given)))
            async with producer.transaction("T", b"x"):
                pass
            assert "CHECK_IMMUNITY_TIME_IN_SECONDS" not in half_properties(broker)
            wrong: Any
            for wrong in (0, -1, True, "soon", 8 * 24 * 3600):
                with pytest.raises(UsageError, match="check_after="):
                    producer.transaction("T", b"x", check_after=wrong)

    run(go())


def test_an_end_that_comes_after_the_time_asked_for_is_told_as_the_answer_to_a_check() -> None:
    def answer(link: Link, command: Any) -> None:
        is_late = (command.ext or {})["fromTransactionCheck"] == "false"
        link.reply(command, 604 if is_late else 0)

    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[END] = answer
            async with producer.transaction("T", b"x", check_after=1) as tx:
                pass
            assert tx.outcome is Outcome.COMMIT
            assert [end["fromTransactionCheck"] for end in ends(broker)] == ["false", "true"]
            broker.answers[END] = lambda link, command: link.reply(command, 604)
            with pytest.raises(OutcomeUnknown):
                async with producer.transaction("T", b"x", check_after=1):
                    pass

    run(go())


def test_nothing_is_committed_whose_message_could_not_be_sent() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            for way in ("detach", "database_decides"):
                seen: list[int] = []

                def answer(link: Link, command: Any, seen: list[int] = seen) -> None:
                    seen.append(1)
                    if len(seen) == 1:
                        stored(link, command, signed_id="id-1")
                    else:
                        link.reply(command, 13, remark="planted")

                broker.answers[SEND] = answer
                with pytest.raises(TransactionBroken):  # noqa: PT012
                    async with producer.transaction() as tx:
                        await tx.send("T", b"one")
                        with pytest.raises(Exception, match="planted"):
                            await tx.send("T", b"two")
                        getattr(tx, way)()
                assert ends(broker)[-1]["commitOrRollback"] == "12"

    run(go())


def test_a_transaction_says_what_it_is_and_whether_it_was_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        async with a_place("T") as (names, _), Producer(names.address, group="PG") as producer:
            tx = producer.transaction("T", b"x")
            assert repr(tx) == "<Transaction (nothing stored) to T, not begun>"
            await tx.begin()
            assert repr(tx).endswith(" to T, open>")
            await tx.settle(Outcome.ROLLBACK)
            assert repr(tx).endswith(" to T, ended: ROLLBACK>")
            producer.transaction("T", b"x")
            gc.collect()
            assert "never begun" in caplog.text
            assert repr(producer) == "<aio.Producer of group 'PG', open>"
            with pytest.raises(UsageError, match="nothing can be added after"):  # noqa: PT012
                async with producer.transaction() as tx:
                    await tx.send("T", b"one")
                    tx.database_decides()
                    await tx.send("T", b"two")

    run(go())
    assert len([text for text in caplog.messages if "no check:" in text]) == 1


def test_only_so_many_outcomes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "KNOWN_MAX", 2)
    known = KnownOutcomes()
    for key in ("a", "b", "a", "c"):
        known.remember_outcome(key, Outcome.COMMIT)
    assert [known.outcome_of({"UNIQ_KEY": key}) for key in "abc"] == [
        Outcome.COMMIT,
        None,
        Outcome.COMMIT,
    ]
