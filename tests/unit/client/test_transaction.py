from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from escrowmq.aio import Interceptor, Message, Outcome, Producer
from escrowmq.base.codes import Request
from escrowmq.client.core.end_request import parse_transaction_id
from escrowmq.codec.properties import parse_properties
from escrowmq.errors import (
    BrokerBusy,
    HalfNotSafe,
    ManyMessagesUnsupported,
    OutcomeContradicted,
    OutcomeUnknown,
    PermissionDenied,
    RequestTimeout,
    SendFailed,
    TransactionBroken,
    UsageError,
)

from .peer import Peer, a_peer, a_place, ends, stored

SEND = Request.SEND_MESSAGE_V2
END = Request.END_TRANSACTION


def run(test: Any) -> None:
    asyncio.run(test())


def halves(broker: Peer) -> list[dict[str, str]]:
    return [
        parse_properties((command.ext or {})["i"])
        for command in broker.requests
        if command.code == SEND
    ]


def test_a_clean_block_commits_and_the_half_is_told_as_one() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                async with producer.transaction("T", b"x", keys=["k"]) as tx:
                    assert not ends(broker)
                assert tx.results[0].offset == 5
            (half,) = halves(broker)
            assert (half["TRAN_MSG"], half["PGROUP"], half["KEYS"]) == ("true", "PG", "k")
            assert ends(broker) == [
                {
                    "producerGroup": "PG",
                    "topic": "T",
                    "commitLogOffset": "5",
                    "tranStateTableOffset": "5",
                    "commitOrRollback": "8",
                    "fromTransactionCheck": "false",
                    "msgId": half["UNIQ_KEY"],
                    "transactionId": half["UNIQ_KEY"],
                    "bname": "b",
                }
            ]

    run(go)


def test_a_message_that_is_changed_and_used_again_was_sent_as_it_was() -> None:
    class Ends(Interceptor):
        bodies: list[bytes]

        def before_settle(
            self, transaction_id: str, outcome: Outcome, messages: Sequence[Message]
        ) -> None:
            self.bodies = [message.body for message in messages]

    async def go() -> None:
        told = Ends()
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG", interceptors=[told]) as producer,
        ):
            message = Message("T", b"1")
            first = producer.transaction(message)
            message.body = b"2"
            async with first:
                pass
            assert told.bodies == [b"1"]
            async with producer.transaction() as tx:
                await tx.send(message)
                message.body = b"3"
                await tx.send(message)
            assert told.bodies == [b"2", b"3"]
        assert [each.body for each in broker.requests if each.code == SEND] == [b"1", b"2", b"3"]

    run(go)


def test_an_error_in_the_block_rolls_back_and_is_raised() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            with pytest.raises(KeyError, match="planted"):
                async with producer.transaction("T", b"x"):
                    raise KeyError("planted")
            async with producer.transaction("T", b"x") as tx:
                tx.rollback()
            async with producer.transaction("T", b"x") as tx:
                tx.unknown()
            await broker.until(lambda: len(ends(broker)) == 3)
            assert [end["commitOrRollback"] for end in ends(broker)] == ["12", "12", "0"]

    run(go)


def test_an_error_in_the_block_is_raised_even_if_the_rollback_is_not_confirmed() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[END] = lambda link, command: link.transport.abort()
            with pytest.raises(KeyError, match="planted"):
                async with producer.transaction("T", b"x"):
                    raise KeyError("planted")

    run(go)


def test_a_commit_that_a_foreign_broker_does_not_confirm_is_never_repeated() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[END] = lambda link, command: link.transport.abort()
            with pytest.raises(OutcomeUnknown, match="need not do anything"):
                async with producer.transaction("T", b"x"):
                    pass
            assert len(ends(broker)) == 1
            broker.answers[END] = lambda link, command: link.reply(command, 1, remark="page cache")
            with pytest.raises(OutcomeUnknown, match="page cache"):
                async with producer.transaction("T", b"x"):
                    pass
            assert len(ends(broker)) == 2

    run(go)


def test_a_commit_at_our_broker_is_repeated_until_it_is_confirmed() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG", timeout_ms=10_000) as producer,
        ):
            failures: list[Any] = [
                lambda link, command: link.transport.abort(),
                lambda link, command: link.reply(command, 14, remark="full"),
                lambda link, command: link.reply(command),
            ]
            broker.answers[END] = lambda link, command: failures.pop(0)(link, command)  # noqa: PLW0108
            async with producer.transaction("T", b"x") as tx:
                assert tx.id == "id-1"
            first, *others = ends(broker)
            assert others == [first] * 2
            assert "escrowId" not in first  # the half's place says as much, and costs less

    run(go)


def test_an_end_that_is_never_confirmed_takes_its_time_and_no_more() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG", timeout_ms=500) as producer,
        ):
            broker.answers[END] = lambda link, command: None
            with pytest.raises(OutcomeUnknown, match="check-back"):
                async with producer.transaction("T", b"x"):
                    pass

    run(go)


def test_unconfirmed_commits_can_be_left_to_the_log() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", confirms_commits=False) as producer,
        ):
            broker.answers[END] = lambda link, command: link.reply(command, 1)
            async with producer.transaction("T", b"x") as tx:
                pass
            assert tx.outcome is None  # nobody waits for it
            await producer.flush()
            assert len(ends(broker)) == 1
            assert tx.outcome is Outcome.UNKNOWN
            assert isinstance(tx.error, OutcomeUnknown)
            assert producer.unconfirmed_count == 1
            del broker.answers[END]
            async with producer.transaction("T", b"x") as tx:
                pass
            await producer.flush()
            assert (tx.outcome, tx.error) == (Outcome.COMMIT, None)

    run(go)


@pytest.mark.parametrize("code", [200, 201, 202])
def test_an_end_that_contradicts_the_recorded_one_says_so(code: int) -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[END] = lambda link, command: link.reply(
                command, code, ext={"escrowOutcome": "expired"}
            )
            with pytest.raises(OutcomeContradicted, match="expired"):
                async with producer.transaction("T", b"x"):
                    pass

    run(go)


@pytest.mark.parametrize("code", [10, 11, 12])
def test_a_half_that_is_not_safe_is_rolled_back_before_anything_runs(code: int) -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            broker.answers[SEND] = lambda link, command: stored(link, command, code=code)
            with pytest.raises(HalfNotSafe, match="accepts_unsafe_halves"):
                async with producer.transaction("T", b"x"):
                    raise AssertionError("the block must not run")
            assert [end["commitOrRollback"] for end in ends(broker)] == ["12"]
            async with (
                Producer(names.address, group="P2", accepts_unsafe_halves=True) as other,
                other.transaction("T", b"x"),
            ):
                pass
            assert ends(broker)[1]["commitOrRollback"] == "8"

    run(go)


def test_several_messages_are_bound_and_counted() -> None:
    async def go() -> None:
        async with (
            a_place("T", "U", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            async with producer.transaction() as tx:
                await tx.send("T", b"1")
                await tx.send("U", b"2", order_key="k")
            one, two = halves(broker)
            assert one["escrowTransaction"] == two["escrowTransaction"]
            assert two["escrowOrderKey"] == "k"
            (end,) = ends(broker)
            assert (end["escrowCount"], end["escrowId"]) == ("2", "id-1")
            async with producer.transaction():
                pass
            assert len(ends(broker)) == 1, "nothing was sent, nothing is to end"

    run(go)


def test_a_foreign_broker_gets_no_second_message_and_the_first_is_rolled_back() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            with pytest.raises(ManyMessagesUnsupported, match="nothing was delivered"):  # noqa: PT012 - the second send raises
                async with producer.transaction() as tx:
                    await tx.send("T", b"1")
                    await tx.send("T", b"2")
            assert len(halves(broker)) == 1
            assert [end["commitOrRollback"] for end in ends(broker)] == ["12"]

    run(go)


def test_a_message_that_could_not_be_sent_spoils_the_whole_transaction() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            with pytest.raises(TransactionBroken):  # noqa: PT012 - the block's end raises
                async with producer.transaction() as tx:
                    await tx.send("T", b"1")
                    broker.answers[SEND] = lambda link, command: link.reply(command, 2)
                    with pytest.raises(BrokerBusy):
                        await tx.send("T", b"2")
            assert [end["commitOrRollback"] for end in ends(broker)] == ["12"]

    run(go)


def test_a_bound_message_is_not_repeated_when_it_may_be_stored() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="id-1") as (names, broker),
            Producer(names.address, group="PG") as producer,
        ):
            broker.answers[SEND] = lambda link, command: link.transport.abort()
            with pytest.raises(SendFailed):
                async with producer.transaction() as tx:
                    await tx.send("T", b"1")
            assert len(halves(broker)) == 1

    run(go)


def test_a_detached_transaction_is_ended_by_whoever_has_its_id() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with (
                Producer(names.address, group="PG") as producer,
                producer.transaction("T", b"x") as tx,
            ):
                token = tx.detach()
                with pytest.raises(UsageError, match="ended"):
                    tx.detach()
            assert not ends(broker)
            half = parse_transaction_id(token)
            assert (half.broker_name, half.group, half.log_offset) == ("b", "PG", 5)
            names.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda link, command: link.reply(
                command,
                body=b'{"brokerAddrTable":{"b":{"brokerAddrs":{0:"%b"},"brokerName":"b"}}}'
                % broker.address.encode(),
            )
            async with Producer(names.address, group="other") as other:
                await other.commit(token)
                await other.rollback(token)
                for wrong in (
                    "",
                    "u1.",
                    "u1.!!",
                    "abc",
                    token + ".",
                    token[:9] + "\n" + token[9:],
                    "x" * 3000,
                    "é",
                    7,
                ):
                    with pytest.raises(UsageError, match="detach"):
                        await other.commit(wrong)  # type: ignore[arg-type]
            assert [(e["producerGroup"], e["commitOrRollback"]) for e in ends(broker)] == [
                ("PG", "8"),
                ("PG", "12"),
            ]

    run(go)


def test_a_signed_id_that_a_broker_refuses_is_the_callers_news() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            await producer.send("T", b"x")
            broker.answers[END] = lambda link, command: link.reply(command, 16, remark="ran out")
            async with producer.transaction("T", b"x") as tx:
                token = tx.detach()
            with pytest.raises(PermissionDenied, match="ran out"):
                await producer.commit(token)

    run(go)


def test_misuse_of_a_transaction_is_named() -> None:
    async def go() -> None:
        async with a_place("T") as (names, _), Producer(names.address, group="PG") as producer:
            with pytest.raises(UsageError, match="without"):
                async with producer.transaction("T", b"x") as tx:
                    await tx.send("T", b"y")
            with pytest.raises(UsageError, match="begins once"):
                await tx.begin()
            with pytest.raises(UsageError, match="has ended"):
                await tx.settle(Outcome.COMMIT)
            with pytest.raises(UsageError, match="inside"):
                await producer.transaction().send("T", b"y")
            with pytest.raises(UsageError, match="send one first"):
                async with producer.transaction() as tx:
                    tx.detach()
            with pytest.raises(UsageError, match="listener"):
                await producer.send_in_transaction(Message("T", b"x"))

    run(go)


def test_a_delayed_half_is_refused_where_it_would_be_lost() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker), Producer(names.address, group="PG") as producer:
            async with producer.transaction("T", b"x", delay=1):  # this peer says PYTHON
                pass
            assert halves(broker)[0]["escrowDelay"] == "true"
            connection = producer.instance.pool.get_ready(broker.address)
            assert connection is not None
            connection._dialogue.language = "JAVA"
            with pytest.raises(UsageError, match="would lose"):
                async with producer.transaction("T", b"x", delay=1):
                    pass
            assert len(halves(broker)) == 1

    run(go)


def test_interceptors_learn_of_every_end() -> None:
    class Seen(Interceptor):
        def __init__(self) -> None:
            self.ends: list[tuple[str, Outcome, object]] = []

        def after_settle(
            self, transaction_id: str, outcome: Outcome, error: BaseException | None
        ) -> None:
            self.ends.append((transaction_id, outcome, error))

    async def go() -> None:
        seen = Seen()
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", interceptors=[seen]) as producer,
        ):
            async with producer.transaction("T", b"x") as tx:
                pass
            broker.answers[END] = lambda link, command: link.reply(command, 1)
            with pytest.raises(OutcomeUnknown):
                async with producer.transaction("T", b"x"):
                    pass
            assert seen.ends[0] == (tx.id, Outcome.COMMIT, None)
            assert isinstance(seen.ends[1][2], OutcomeUnknown)

    run(go)


def test_a_half_whose_time_is_over_never_runs_the_block() -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="PG", timeout_ms=50) as producer,
        ):
            broker.answers[SEND] = lambda link, command: None
            with pytest.raises(RequestTimeout):
                async with producer.transaction("T", b"x"):
                    raise AssertionError("the block must not run")
            assert not ends(broker)

    run(go)


def test_what_has_not_begun_cannot_end() -> None:
    async def go() -> None:
        async with a_place("T") as (names, broker):
            async with Producer(names.address, group="PG") as producer:
                with pytest.raises(UsageError, match=r"not begun.*call begin\(\) first"):
                    await producer.transaction("T", b"x").settle(Outcome.COMMIT)
                tx = await producer.transaction("T", b"x").begin()
                with pytest.raises(UsageError, match="an Outcome is expected"):
                    await tx.settle("COMMIT")  # type: ignore[arg-type]
                await tx.settle(Outcome.COMMIT)
            assert len(ends(broker)) == 1

    run(go)


def test_messages_that_are_sent_at_the_same_time_go_to_one_broker() -> None:
    """Each chose a broker of its own as long as no first message was stored. The END went to one of
    them, and said that there were more messages than it had."""

    async def go() -> None:
        async with a_peer() as names, a_peer() as one, a_peer() as other:
            names.be_name_server(one.address, topics=("T",), others={"other": other.address})
            for peer in (one, other):
                peer.answers[Request.SEND_MESSAGE_V2] = lambda link, command: stored(
                    link, command, signed_id="signed"
                )
            async with Producer(
                names.address, group="PG", check=lambda _: Outcome.COMMIT
            ) as producer:
                async with producer.transaction() as tx:
                    await asyncio.gather(*(tx.send("T", b"%d" % n) for n in range(6)))
                counts = [peer.codes().count(Request.SEND_MESSAGE_V2) for peer in (one, other)]
                assert sorted(counts) == [0, 6]
                (end,) = [*ends(one), *ends(other)]
                assert end["escrowCount"] == "6"

    run(go)


def test_no_message_is_stored_behind_the_end_for_which_the_first_one_was_waited_for() -> None:
    async def go() -> None:
        async with (
            a_place("T", signed_id="signed") as (names, broker),
            Producer(names.address, group="PG", check=lambda _: Outcome.COMMIT) as producer,
        ):
            held: list[Any] = []
            broker.answers[Request.SEND_MESSAGE_V2] = lambda *asked: held.append(asked)
            tx = await producer.transaction().begin()
            sends = [asyncio.create_task(tx.send("T", b"x")) for _ in range(2)]
            await broker.until(lambda: held)
            await tx.settle(Outcome.ROLLBACK)
            stored(*held[0], signed_id="signed")
            results = await asyncio.gather(*sends, return_exceptions=True)
            assert isinstance(results[1], UsageError)
            assert broker.codes().count(Request.SEND_MESSAGE_V2) == 1

    run(go)
