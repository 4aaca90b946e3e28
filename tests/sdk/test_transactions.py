"""Transactions at a real broker: every outcome, and whoever else may settle them."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable

import pytest

import escrowmq
from escrowmq.errors import (
    ManyMessagesUnsupported,
    OutcomeContradicted,
    PermissionDenied,
    TransactionBroken,
    UsageError,
)
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.conftest import new_topic
from tests.sdk.reading import bodies, delivered, wait_bodies, wait_delivered

Asked = list[escrowmq.ReceivedMessage]


def says(outcome: escrowmq.Outcome, asked: Asked) -> Callable[..., escrowmq.Outcome]:
    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        asked.append(message)
        return outcome

    return check


def test_the_message_appears_when_the_block_ends_and_not_before(
    server: Server, topic: str, group: str
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with producer.transaction(topic, b"x", tag="a", keys=["k"]) as tx:
            assert bodies(server, topic) == []
        (found,) = wait_delivered(server, topic, 1)
        assert (found.body, found.tag, found.keys) == (b"x", "a", ["k"])
        assert found.message_id == tx.results[0].message_id
        assert found.transaction_id


def test_an_error_rolls_back(server: Server, topic: str, group: str, peer: str) -> None:
    asked: list[bytes] = []

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        asked.append(message.body)
        return escrowmq.Outcome.COMMIT if message.body == b"open" else escrowmq.Outcome.ROLLBACK

    with escrowmq.Producer(server.nameserver, group=group, check=check) as producer:
        with pytest.raises(ZeroDivisionError), producer.transaction(topic, b"gone"):
            1 / 0  # noqa: B018 - it raises
        with producer.transaction(topic, b"open") as tx:
            tx.unknown()
        wait_bodies(server, topic, [b"open"])
    if peer == "escrow":  # RocketMQ's broker asks about ended ones too, for some seconds
        assert asked == [b"open"]


@pytest.mark.parametrize("outcome", [escrowmq.Outcome.COMMIT, escrowmq.Outcome.ROLLBACK])
def test_an_open_outcome_is_asked_for_and_the_answer_settles_it(
    server: Server, topic: str, group: str, outcome: escrowmq.Outcome
) -> None:
    asked: Asked = []
    with escrowmq.Producer(server.nameserver, group=group, check=says(outcome, asked)) as producer:
        with producer.transaction(topic, b"x", keys=["k"], properties={"a": "b"}) as tx:
            tx.unknown()
        until("the check", lambda: asked)
        (message, *_) = asked
        assert (message.topic, message.body, message.keys) == (topic, b"x", ["k"])
        assert message.properties == {"a": "b"}
        assert message.message_id == tx.results[0].message_id
        with producer.transaction(topic, b"marker"):
            pass
        expected = [b"marker", b"x"] if outcome is escrowmq.Outcome.COMMIT else [b"marker"]
        wait_bodies(server, topic, expected)


def test_a_check_that_does_not_know_is_asked_again(server: Server, topic: str, group: str) -> None:
    answers: list[escrowmq.Outcome | Exception] = [
        escrowmq.Outcome.UNKNOWN,
        ValueError("planted"),
        escrowmq.Outcome.COMMIT,
    ]
    asked: Asked = []

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        asked.append(message)
        found = answers[min(len(asked), len(answers)) - 1]
        if isinstance(found, Exception):
            raise found
        return found

    with escrowmq.Producer(server.nameserver, group=group, check=check) as producer:
        with producer.transaction(topic, b"x") as tx:
            tx.unknown()
        wait_bodies(server, topic, [b"x"], within_s=60)
    assert len(asked) == 3


def test_checkers_by_topic_and_by_name(server: Server, group: str) -> None:
    by_topic, by_name, rest = new_topic(server), new_topic(server), new_topic(server)
    seen: dict[str, Asked] = {"topic": [], "name": [], "rest": []}
    commit = escrowmq.Outcome.COMMIT
    with escrowmq.Producer(
        server.nameserver,
        group=group,
        checkers={by_topic: says(commit, seen["topic"]), "refunds": says(commit, seen["name"])},
        check=says(commit, seen["rest"]),
    ) as producer:
        for topic, checker in ((by_topic, ""), (by_name, "refunds"), (rest, "")):
            with producer.transaction(topic, b"x", checker=checker) as tx:
                tx.unknown()
        for topic in (by_topic, by_name, rest):
            wait_bodies(server, topic, [b"x"])
    assert {name: [m.topic for m in found] for name, found in seen.items()} == {
        "topic": [by_topic],
        "name": [by_name],
        "rest": [rest],
    }


def test_a_coroutine_can_answer_checks(server: Server, topic: str, group: str) -> None:
    async def go() -> None:
        asked = asyncio.Event()

        async def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
            asked.set()
            return escrowmq.Outcome.COMMIT

        async with escrowmq.aio.Producer(server.nameserver, group=group, check=check) as producer:
            async with producer.transaction(topic, b"x") as tx:
                tx.unknown()
            async with asyncio.timeout(30):
                await asked.wait()
            await asyncio.to_thread(wait_bodies, server, topic, [b"x"])

    asyncio.run(go())


DIES = """
import os, signal, sys
import escrowmq
producer = escrowmq.Producer(sys.argv[1], group=sys.argv[2])
with producer.transaction(sys.argv[3], b"orphan") as tx:
    print(tx.id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def half_of_a_dead_process(server: Server, *, group: str, topic: str) -> str:
    """A process stores a half message and is killed; the transaction's id."""
    done = subprocess.run(
        [sys.executable, "-c", DIES, server.nameserver, group, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == -9, done.stderr
    return done.stdout.strip()


def test_another_producer_of_the_group_answers_for_one_that_died(
    server: Server, topic: str, group: str
) -> None:
    half_of_a_dead_process(server, group=group, topic=topic)
    asked: Asked = []
    # It never sends anything: the heartbeat at its start makes it known.
    with escrowmq.Producer(
        server.nameserver, group=group, check=says(escrowmq.Outcome.COMMIT, asked)
    ):
        wait_bodies(server, topic, [b"orphan"], within_s=60)
    assert [message.body for message in asked] == [b"orphan"]


def test_the_id_of_a_dead_process_ends_its_transaction(
    server: Server, topic: str, group: str
) -> None:
    first = half_of_a_dead_process(server, group=group, topic=topic)
    second = half_of_a_dead_process(server, group=group, topic=topic)
    with escrowmq.Producer(server.nameserver, group=group + "-other") as producer:
        producer.commit(first)
        producer.rollback(second)
        wait_bodies(server, topic, [b"orphan"])


def test_a_detached_transaction_waits_for_whoever_has_its_id(
    server: Server, topic: str, group: str
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with producer.transaction(topic, b"x") as tx:
            transaction_id = tx.detach()
        assert bodies(server, topic) == []
        with pytest.raises(UsageError):
            producer.commit(transaction_id[:-3] + "...")
        producer.commit(transaction_id)
        wait_bodies(server, topic, [b"x"])


@pytest.mark.ours_alone
def test_ends_can_be_repeated_and_contradictions_are_told(
    server: Server, topic: str, group: str
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with producer.transaction(topic, b"x") as tx:
            transaction_id = tx.detach()
        for _ in range(3):
            producer.commit(transaction_id)
        with pytest.raises(OutcomeContradicted, match="committed"):
            producer.rollback(transaction_id)
        forged = transaction_id[:-1] + ("A" if transaction_id[-1] != "A" else "Q")
        forged = forged[:20] + ("B" if forged[20] != "B" else "C") + forged[21:]
        with pytest.raises(PermissionDenied, match="not signed"):
            producer.commit(forged)
        assert bodies(server, topic) == [b"x"], "three commits, one message"


@pytest.mark.ours_alone
def test_several_messages_appear_together_or_not_at_all(
    server: Server, topic: str, group: str
) -> None:
    other = new_topic(server)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with producer.transaction() as tx:
            tx.send(topic, b"order")
            tx.send(other, b"stock")
            assert bodies(server, topic) == bodies(server, other) == []
        assert (bodies(server, topic), bodies(server, other)) == ([b"order"], [b"stock"])
        with pytest.raises(ZeroDivisionError), producer.transaction() as tx:  # noqa: PT012
            tx.send(topic, b"never")
            tx.send(other, b"never")
            1 / 0  # noqa: B018 - it raises
        with pytest.raises(TransactionBroken), producer.transaction() as tx:  # noqa: PT012
            tx.send(topic, b"never")
            with pytest.raises(ValueError, match="body"):
                tx.send(other, b"")
        assert (bodies(server, topic), bodies(server, other)) == ([b"order"], [b"stock"])


@pytest.mark.ours_alone
def test_one_check_settles_all_messages_of_a_transaction(
    server: Server, topic: str, group: str
) -> None:
    other = new_topic(server)
    asked: Asked = []
    with escrowmq.Producer(
        server.nameserver, group=group, check=says(escrowmq.Outcome.COMMIT, asked)
    ) as producer:
        with producer.transaction() as tx:
            for n in range(3):
                tx.send(topic, b"%d" % n)
            tx.send(other, b"3")
            tx.unknown()
        wait_bodies(server, topic, [b"0", b"1", b"2"])
        wait_bodies(server, other, [b"3"])
    assert len({message.transaction_id for message in asked}) == 1


@pytest.mark.ours_alone
def test_a_delay_in_a_transaction_counts_from_the_commit(
    server: Server, topic: str, group: str
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with producer.transaction(topic, b"later", delay_level=2):
            pass
        with producer.transaction(topic, b"now"):
            pass
        assert bodies(server, topic) == [b"now"]
        wait_bodies(server, topic, [b"later", b"now"])


@pytest.mark.ours_alone
def test_an_order_key_means_the_order_of_the_commits(
    server: Server, topic: str, group: str
) -> None:
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        ids = []
        for n in range(3):
            with producer.transaction(topic, b"%d" % n, order_key="customer") as tx:
                ids.append(tx.detach())
        for index in (2, 0, 1):
            producer.commit(ids[index])
        assert [message.body for message in delivered(server, topic)] == [b"2", b"0", b"1"]


def test_a_listener_decides_between_the_phases(server: Server, topic: str, group: str) -> None:
    class Both:
        def execute(self, message: escrowmq.Message, arg: object) -> escrowmq.Outcome:
            assert threading.current_thread() is threading.main_thread()
            assert bodies(server, topic) == []
            assert isinstance(arg, escrowmq.Outcome)
            return arg

        def check(self, message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
            return escrowmq.Outcome.COMMIT

    with escrowmq.Producer(server.nameserver, group=group, listener=Both()) as producer:
        for outcome in (escrowmq.Outcome.ROLLBACK, escrowmq.Outcome.UNKNOWN):
            body = outcome.name.encode()
            sent = producer.send_in_transaction(escrowmq.Message(topic, body), outcome)
            assert sent.outcome is outcome
        wait_bodies(server, topic, [b"UNKNOWN"], within_s=60)


def test_a_foreign_broker_refuses_several_messages_by_name(
    server: Server, topic: str, group: str, peer: str
) -> None:
    if peer != "java":
        pytest.skip("this broker can")
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        with pytest.raises(ManyMessagesUnsupported), producer.transaction() as tx:  # noqa: PT012
            tx.send(topic, b"1")
            tx.send(topic, b"2")
        delayed = producer.transaction(topic, b"x", delay_level=1)
        with pytest.raises(UsageError, match="would lose"):
            delayed.begin()
        with producer.transaction() as tx:
            tx.send(topic, b"only")
        wait_bodies(server, topic, [b"only"])
