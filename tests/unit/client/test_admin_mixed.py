"""Transactions in a cluster of both kinds: RocketMQ's brokers know no such requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from escrowmq.aio import Admin
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.pending_bodies import TransactionItem
from escrowmq.errors import ConnectFailed, EscrowMQError, NotFound, NotSupported

from .peer import DEADLINE_S, Link, Peer, a_peer

OURS, THEIRS, GONE = "broker-a", "broker-j", "broker-0"
CODES = (
    Request.ESCROW_PENDING_LIST, Request.ESCROW_PENDING_COUNT, Request.ESCROW_SHOW,
    Request.ESCROW_CHECK, Request.ESCROW_SETTLE, Request.ESCROW_DISCARDED_LIST,
    Request.ESCROW_DISCARDED_RESUME,
)  # fmt: skip
MESSAGE_ID = "0A" * 16


def refuse(link: Link, command: Command) -> None:
    link.reply(command, Response.REQUEST_CODE_NOT_SUPPORTED, remark="request type not supported")


def know_nothing(link: Link, command: Command) -> None:
    link.reply(command, Response.SYSTEM_ERROR, remark="no such half")


def one(link: Link, command: Command) -> None:
    half = TransactionItem(
        half_offset=7, log_offset=9, offset_id="", topic="T", queue_id=0, group="G",
        message_id=MESSAGE_ID, born_ms=1, stored_ms=1, age_ms=1, body_size=1, state="waiting",
    )  # fmt: skip
    items = [msgspec.to_builtins(half)]
    counts = {"count": 1, "parked": 0, "oldestMs": 1, "byTopic": {}, "byGroup": {}}
    body = counts | {"items": items, "next": -1}
    link.reply(command, ext={"escrowOutcome": "committed"}, body=msgspec.json.encode(body))


def in_a_cluster(work: Callable[[Admin, Peer], Awaitable[None]], *names: str) -> None:
    """Run it with an admin of brokers of these names."""

    async def go() -> None:
        async with a_peer() as ours, a_peer() as theirs, a_peer() as registry:
            for code in CODES:
                ours.answers[code], theirs.answers[code] = one, refuse
            addresses = {OURS: ours.address, THEIRS: theirs.address, GONE: "127.0.0.1:1"}
            table = {
                name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": addresses[name]}}
                for name in names
            }
            info = msgspec.json.encode(
                {"brokerAddrTable": table, "clusterAddrTable": {"c": list(names)}}
            )
            registry.answers[Request.GET_BROKER_CLUSTER_INFO] = lambda link, command: link.reply(
                command, body=info
            )
            async with Admin(registry.address) as admin:
                await work(admin, ours)

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))


def test_what_our_brokers_know_is_told_although_another_is_rocketmqs() -> None:
    async def work(admin: Admin, _: Peer) -> None:
        told = admin.transactions
        assert [item.broker async for item in told.pending()] == [OURS]
        assert [item.broker async for item in told.discarded()] == [OURS]
        assert [item.broker for item in await told.show(MESSAGE_ID)] == [OURS]
        assert (await told.count()).count == 1
        assert await told.check() == await told.check(MESSAGE_ID) == 1
        assert await told.commit(MESSAGE_ID) == await told.rollback(MESSAGE_ID) == "committed"
        assert await told.resume("", topic="T") == await told.resume("offset id") == 1

    in_a_cluster(work, OURS, THEIRS)


def test_a_broker_that_is_named_is_the_only_one_that_is_asked() -> None:
    async def work(admin: Admin, _: Peer) -> None:
        told = admin.transactions
        assert [item.broker async for item in told.pending(broker=OURS)] == [OURS]
        with pytest.raises(NotSupported):
            await anext(told.pending(broker=THEIRS))
        for ask in (
            lambda: told.show(MESSAGE_ID, broker=THEIRS),
            lambda: told.check(MESSAGE_ID, broker=THEIRS),
            lambda: told.check(broker=THEIRS),
            lambda: told.count(broker=THEIRS),
            lambda: told.commit(MESSAGE_ID, broker=THEIRS),
        ):
            with pytest.raises(NotSupported):
                await ask()

    in_a_cluster(work, OURS, THEIRS)


def test_what_nobody_knows_may_be_known_to_rocketmqs_broker() -> None:
    async def work(admin: Admin, ours: Peer) -> None:
        ours.answers[Request.ESCROW_SHOW] = know_nothing
        with pytest.raises(NotFound, match="no such half; RocketMQ's brokers were not asked"):
            await admin.transactions.show(MESSAGE_ID)

    in_a_cluster(work, OURS, THEIRS)


def test_without_any_of_ours_it_is_not_supported() -> None:
    async def work(admin: Admin, _: Peer) -> None:
        told = admin.transactions
        with pytest.raises(NotSupported):
            await anext(told.pending())
        for ask in (told.count, told.check, lambda: told.show(MESSAGE_ID)):
            with pytest.raises(NotSupported):
                await ask()

    in_a_cluster(work, THEIRS)


def test_a_message_is_found_although_a_broker_is_unreachable() -> None:
    async def work(admin: Admin, ours: Peer) -> None:
        told = admin.transactions
        assert [item.broker for item in await told.show(MESSAGE_ID)] == [OURS]
        assert await told.check(MESSAGE_ID) == await told.resume("offset id") == 1
        assert await told.commit(MESSAGE_ID) == await told.rollback(MESSAGE_ID) == "committed"
        for code in CODES:
            ours.answers[code] = know_nothing
        for ask in (told.show, told.check, told.resume, told.commit, told.rollback):
            with pytest.raises(ConnectFailed, match=r"not known to the others.*127\.0\.0\.1:1"):
                await ask(MESSAGE_ID)

    in_a_cluster(work, GONE, OURS)


def test_a_transaction_is_settled_once_and_an_error_of_its_broker_reported() -> None:
    def refuse_to_settle(link: Link, command: Command) -> None:
        link.reply(command, Response.NO_PERMISSION, remark="not yours")

    async def work(admin: Admin, ours: Peer) -> None:
        assert await admin.transactions.commit(MESSAGE_ID) == "committed"
        assert [each.code for each in ours.requests].count(Request.ESCROW_SETTLE) == 1
        ours.answers[Request.ESCROW_SETTLE] = refuse_to_settle
        with pytest.raises(EscrowMQError, match="not yours"):
            await admin.transactions.commit(MESSAGE_ID)

    in_a_cluster(work, GONE, OURS)


def test_an_empty_answer_is_that_of_a_broker_which_does_not_know() -> None:
    def empty(link: Link, command: Command) -> None:
        link.reply(command, body=b'{"items":[],"next":-1,"count":0}')

    async def work(admin: Admin, ours: Peer) -> None:
        ours.answers[Request.ESCROW_SHOW] = ours.answers[Request.ESCROW_DISCARDED_RESUME] = empty
        for ask in (admin.transactions.show, admin.transactions.resume):
            with pytest.raises(NotFound):
                await ask(MESSAGE_ID)

    in_a_cluster(work, OURS)


def test_a_resumption_that_is_done_in_parts_goes_on_to_the_limit() -> None:
    asked: list[dict[str, object]] = []

    def in_parts(link: Link, command: Command) -> None:
        asked.append(json.loads(command.body))
        link.reply(command, body=msgspec.json.encode({"count": len(asked) - 1, "next": len(asked)}))

    async def work(admin: Admin, ours: Peer) -> None:
        ours.answers[Request.ESCROW_DISCARDED_RESUME] = in_parts
        assert await admin.transactions.resume(topic="T", limit=3) == 3
        assert [(one.get("after"), one["limit"]) for one in asked] == [(None, 3), (1, 3), (2, 2)]

    in_a_cluster(work, OURS)
