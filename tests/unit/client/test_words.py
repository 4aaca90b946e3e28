"""What a user who made a mistake reads, and that a mistake is said at all."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import escrowmq
from escrowmq import Credentials, testing
from escrowmq.aio import Consumer, Message, Producer
from escrowmq.client.core.subscription import parse_subscription
from escrowmq.client.core.validation import check_message
from escrowmq.errors import (
    ConnectionLost,
    InvalidMessage,
    PermissionDenied,
    SubscriptionMissing,
    SubscriptionOutdated,
    UsageError,
    response_error,
)
from escrowmq.testing import Account, Broker

from .peer import a_place
from .test_consumer import QUICK, a_script


def test_keys_that_are_no_texts_and_tags_that_are_two_are_refused() -> None:
    keys: Any = 7
    with pytest.raises(InvalidMessage, match=r"keys=7; a text, or a list"):
        check_message(Message("T", b"x", keys=keys), body_size_max=9)
    with pytest.raises(InvalidMessage, match=r"a message has one tag"):
        check_message(Message("T", b"x", tag="a||b"), body_size_max=9)


@pytest.mark.parametrize("address", ["tcp://h:1", "https://h:1", "rocketmq://h:9876"])
def test_an_address_with_a_scheme_is_refused_before_anything_is_sent(address: str) -> None:
    with pytest.raises(UsageError, match="without a prefix"):
        Producer(address, group="g")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP"),
        (b"E\x00\x00\x00\x8dSFATAL\x00", "PostgreSQL"),
        (b"-ERR unknown command\r\n", "Redis"),
    ],
)
def test_a_port_of_another_server_is_named(words: bytes, name: str) -> None:
    async def go() -> None:
        async with (
            a_place("T") as (names, broker),
            Producer(names.address, group="g") as producer,
        ):
            for code in (310, 34):
                broker.answers[code] = lambda link, command: link.transport.write(words)
            with pytest.raises(escrowmq.errors.SendFailed) as failed:
                await producer.send("T", b"x", timeout_ms=500)
            errors = [error for _, error in failed.value.attempts]
            assert any(isinstance(e, ConnectionLost) and name in str(e) for e in errors), errors

    asyncio.run(go())


def test_a_consumer_may_read_what_is_the_brokers_own_and_needs_some_topic() -> None:
    topic = "TRANS_CHECK_MAX_TIME_TOPIC"
    assert parse_subscription(topic, version=1, wire_topic=topic).topic == topic

    async def go() -> None:
        async with (
            a_script() as (names, _),
            Consumer(names, group="g", **QUICK) as consumer,
        ):
            with pytest.raises(UsageError, match="has no topic"):
                await consumer.receive(1)

    asyncio.run(go())


def test_members_that_want_different_things_are_told_what_to_do() -> None:
    for kind in (SubscriptionMissing, SubscriptionOutdated):
        assert "same topics and tags" in str(kind("subscription not exist"))


def test_the_package_has_a_version() -> None:
    assert str(escrowmq.__version__).count(".") == 2


def test_a_plain_client_inside_an_event_loop_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def go() -> None:
        escrowmq.Producer("127.0.0.1:1", group="g").close()

    asyncio.run(go())
    assert "Use escrowmq.aio there" in caplog.text


def test_a_topic_of_the_brokers_own_is_refused_to_readers_as_to_one_who_reads() -> None:
    with pytest.raises(InvalidMessage, match="is the broker's own; read another"):
        Consumer("127.0.0.1:1", group="g", topic="TRANS_CHECK_MAX_TIME_TOPIC")


def test_what_needs_no_await_may_be_awaited_in_a_transaction(escrowmq_broker: Broker) -> None:
    """The TypeError came behind the point where an exception rolls back."""

    async def go() -> None:
        async with Producer(group="g", check=lambda _: escrowmq.Outcome.UNKNOWN) as producer:
            async with producer.transaction("T", b"awaited") as tx:
                done: Any = tx.database_decides()
                await done
            async with producer.transaction("T", b"not awaited") as tx:
                tx.database_decides()
            async with producer.transaction("T", b"rolled back") as tx:
                await tx.rollback()
            async with producer.transaction("T", b"open") as tx:
                await tx.unknown()

    asyncio.run(go())
    assert escrowmq_broker.delivered("T") == [b"awaited", b"not awaited"]
    assert escrowmq_broker.pending("T") == [b"open"]


@pytest.mark.parametrize(
    ("remark", "advice"),
    [
        ("Check signature failed for accessKey=me", "check secret_key"),
        ("the signature of me is not right; check the secret key", "check the secret key"),
        ("No acl config for me", "no account with that access key"),
        ("No accessKey is configured", "give this client credentials="),
        ("T has no right to PUB", "of an account that has it"),
    ],
)
def test_what_was_denied_comes_with_the_advice_for_it(remark: str, advice: str) -> None:
    text = str(response_error(16, remark, address="h:1"))
    assert text.endswith(advice) or advice in text
    assert ("right that is missing" in text) is ("credentials=" in text)


def test_a_wrong_secret_is_told_by_a_broker_with_accounts() -> None:
    accounts = [Account("merchant-1", "the-right-secret", topics={"T": "PUB"})]
    with (
        testing.Broker(accounts=accounts) as broker,
        escrowmq.Producer(
            broker.nameserver, group="g", credentials=Credentials("merchant-1", "another-secret")
        ) as producer,
    ):
        with pytest.raises(PermissionDenied) as denied:
            producer.send("T", b"1")
        assert "secret" in str(denied.value)
        assert "right that is missing" not in str(denied.value)
