"""The broker for users' tests: what it shows, what it lets happen, and what it says of mistakes."""

from __future__ import annotations

import asyncio
import doctest
import importlib
import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.errors import (
    ClientClosed,
    EscrowMQError,
    OutcomeUnknown,
    PermissionDenied,
    UsageError,
)
from escrowmq.testing import Account, Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


def commits(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
    return escrowmq.Outcome.COMMIT


def knows_nothing(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
    return escrowmq.Outcome.UNKNOWN


def leave_open(producer: escrowmq.Producer, body: bytes) -> None:
    with producer.transaction("paid", body) as tx:
        tx.unknown()


# -- what is there -------------------------------------------------------------------------------


def test_messages_are_shown_with_their_keys_in_the_order_of_their_sending(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth in range(3):
            producer.send("paid", b"order %d" % nth, keys=[f"o-{nth}"], properties={"shop": "3"})
    assert broker.delivered("paid") == [b"order 0", b"order 1", b"order 2"]
    first = broker.messages("paid")[0]
    assert (first.keys, first.properties) == (["o-0"], {"shop": "3"})
    assert broker.delivered("nothing") == []


def test_the_test_can_send_what_another_service_would(broker: Broker) -> None:
    broker.send("paid", b"order 1", keys=["o-1"], tag="card")
    (message,) = broker.messages("paid")
    assert (message.body, message.key_list, message.tag) == (b"order 1", ["o-1"], "card")


def test_brokers_of_one_process_know_nothing_of_each_other(broker: Broker) -> None:
    with Broker() as other, escrowmq.Producer(other.nameserver, group="orders") as producer:
        producer.send("paid", b"order 1")
        assert other.delivered("paid") == [b"order 1"]
        assert broker.delivered("paid") == []


# -- transactions --------------------------------------------------------------------------------


def test_a_transaction_whose_check_never_knows_is_given_up(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders", check=knows_nothing) as producer:
        leave_open(producer, b"order 1")
        broker.advance(minutes=5)
        assert broker.pending("paid") == [b"order 1"]
        assert broker.discarded("paid") == []
        broker.advance(minutes=5)
        assert broker.pending("paid") == []
        assert broker.discarded("paid") == [b"order 1"]


def test_a_producer_that_is_there_tells_itself_how_a_lost_end_went(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders", check=knows_nothing) as producer:
        broker.lose_next_end()
        with pytest.raises(OutcomeUnknown), producer.transaction("paid", b"order 1"):
            pass
        assert broker.pending("paid") == [b"order 1"]
        broker.check_now()
        assert broker.delivered("paid") == [b"order 1"]


def test_only_as_many_ends_are_lost_as_were_asked_for(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        broker.lose_next_end(2)
        for nth in range(2):
            with pytest.raises(OutcomeUnknown), producer.transaction("paid", b"%d" % nth):
                pass
        with producer.transaction("paid", b"2"):
            pass
    assert broker.delivered("paid") == [b"2"]
    assert broker.pending() == [b"0", b"1"]


def test_an_end_is_lost_also_after_many_like_it(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth in range(5):
            with producer.transaction("paid", b"%d" % nth):
                pass
        broker.lose_next_end()
        with pytest.raises(OutcomeUnknown), producer.transaction("paid", b"lost"):
            pass
    assert broker.pending() == [b"lost"]


def test_a_producer_that_does_not_answer_is_waited_for_once() -> None:
    hangs = threading.Event()

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        hangs.wait()
        return escrowmq.Outcome.COMMIT

    with (
        Broker(patience_s=1.0) as broker,
        escrowmq.Producer(broker.nameserver, group="orders", check=check) as producer,
    ):
        leave_open(producer, b"order 1")
        broker.check_now()
        assert broker.pending() == [b"order 1"]
        hangs.set()
        assert broker.wait_delivered("paid") == [b"order 1"]


# -- faults --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_a_broker_that_comes_back_has_what_it_had(broker: Broker, how: str) -> None:
    with escrowmq.Producer(
        broker.nameserver, group="orders", check=commits, topics=["paid"]
    ) as producer:
        producer.send("paid", b"order 1")
        leave_open(producer, b"order 2")
        getattr(broker, how)()
        assert broker.delivered("paid") == [b"order 1"]
        assert broker.pending("paid") == [b"order 2"]
        broker.check_now()
        assert broker.delivered("paid") == [b"order 1", b"order 2"]


def test_a_killed_client_is_told_so_and_nobody_answers_for_it(broker: Broker) -> None:
    producer = escrowmq.Producer(broker.nameserver, group="orders", check=commits)
    with pytest.raises(EscrowMQError), producer.transaction("paid", b"order 1"):
        broker.kill(producer)
    with pytest.raises(ClientClosed):
        producer.send("paid", b"order 2")
    broker.check_now()
    assert broker.parked() == [b"order 1"]
    producer.close()


def test_a_killed_consumer_leaves_its_message_to_the_next_one(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        producer.send("paid", b"order 1")
    with escrowmq.Consumer(broker.nameserver, group="mailer", topic="paid") as first:
        (message,) = first.receive(timeout_s=5)
        broker.kill(first)
        with pytest.raises(ClientClosed):
            message.ack()
    with escrowmq.Consumer(broker.nameserver, group="mailer", topic="paid") as second:
        (again,) = second.receive(timeout_s=5)
        assert again.body == b"order 1"
        again.ack()
        broker.wait_consumed("mailer")


def test_what_is_no_client_cannot_be_killed(broker: Broker) -> None:
    with pytest.raises(UsageError, match="not a producer, consumer or admin"):
        broker.kill("orders")


def test_a_full_disk_refuses_messages(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders", retries=0) as producer:
        producer.send("paid", b"order 1")
        with broker.full_disk(), pytest.raises(EscrowMQError, match="disk is full"):
            producer.send("paid", b"order 2")
        producer.send("paid", b"order 3")
    assert broker.delivered("paid") == [b"order 1", b"order 3"]


def test_a_stalled_disk_holds_answers_back(broker: Broker) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders", retries=0) as producer:
        producer.send("paid", b"order 1")
        with broker.stalled_disk(), pytest.raises(EscrowMQError, match="200 ms"):
            producer.send("paid", b"order 2", timeout_ms=200)
        assert broker.wait_delivered("paid", 2) == [b"order 1", b"order 2"]


def test_an_account_is_refused_what_it_does_not_have() -> None:
    accounts = [
        Account("orders-1", "secret-of-it", topics={"paid": "PUB"}),
        Account("mailer-1", "secret-of-it", topics={"paid": "SUB"}, groups={"mailer": "SUB"}),
    ]
    with Broker(accounts=accounts) as broker:
        broker.create_topic("paid")
        for name, may_send in (("orders-1", True), ("mailer-1", False)):
            who = escrowmq.Credentials(name, "secret-of-it")
            with escrowmq.Producer(broker.nameserver, group="g", credentials=who) as producer:
                if may_send:
                    producer.send("paid", b"order 1")
                else:
                    with pytest.raises(PermissionDenied):
                        producer.send("paid", b"order 2")
        assert broker.delivered("paid") == [b"order 1"]
    with pytest.raises(UsageError, match="the right 'WRITE' to 'paid'"):
        Broker(accounts=[Account("orders-1", "secret-of-it", topics={"paid": "WRITE"})])


def test_an_account_can_lose_a_right_while_its_client_is_connected(broker: Broker) -> None:
    who = escrowmq.Credentials("orders-1", "secret-of-it")
    with Broker(accounts=[Account("orders-1", "secret-of-it", topics={"paid": "PUB"})]) as guarded:
        guarded.create_topic("paid")
        with escrowmq.Producer(guarded.nameserver, group="g", credentials=who) as producer:
            producer.send("paid", b"order 1")
            guarded.set_accounts([Account("orders-1", "secret-of-it", topics={"paid": "SUB"})])
            with pytest.raises(PermissionDenied):
                producer.send("paid", b"order 2")
            assert guarded.delivered("paid") == [b"order 1"]
    with pytest.raises(UsageError, match="made without accounts"):
        broker.set_accounts([])


# -- consumers and time --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["pull", "pop"])
def test_what_fails_comes_again_when_time_passes_and_dies_in_the_end(
    broker: Broker, mode: str
) -> None:
    seen: list[int] = []

    def fail(message: escrowmq.Delivery) -> None:
        seen.append(message.deliveries_before)
        raise ValueError("no")

    with (
        escrowmq.Producer(broker.nameserver, group="orders") as producer,
        escrowmq.Consumer(
            broker.nameserver,
            group="mailer",
            topic="paid",
            handler=fail,
            attempts_max=2,
            mode=mode,  # type: ignore[arg-type]
        ),
    ):
        producer.send("paid", b"poison")
        broker.wait_consumed("mailer")
        for _ in range(3):
            broker.advance(minutes=10)
            broker.wait_consumed("mailer")
        assert broker.dead("mailer") == [b"poison"]
    assert seen == [0, 1, 2]


def test_a_group_that_handles_nothing_is_told_with_what_is_there() -> None:
    with Broker(patience_s=1.0) as broker:
        with pytest.raises(AssertionError, match="no consumer of the group 'mailer'"):
            broker.wait_consumed("mailer")
        with escrowmq.Producer(broker.nameserver, group="orders") as producer:
            producer.send("paid", b"order 1")
        with (
            escrowmq.Consumer(broker.nameserver, group="mailer", topic="paid"),
            pytest.raises(AssertionError, match="have not handled 1 of 'paid'\ndelivered to"),
        ):
            broker.wait_consumed("mailer")
        with pytest.raises(AssertionError, match="1 messages are delivered to 'paid'"):
            broker.wait_delivered("paid", 2)


def test_pops_go_on_after_a_long_time(broker: Broker) -> None:
    seen: list[bytes] = []
    with (
        escrowmq.Producer(broker.nameserver, group="orders") as producer,
        escrowmq.Consumer(
            broker.nameserver,
            group="mailer",
            topic="paid",
            mode="pop",
            handler=lambda message: seen.append(message.body),
        ),
    ):
        producer.send("paid", b"order 1")
        broker.wait_consumed("mailer")
        broker.advance(hours=1)
        producer.send("paid", b"order 2")
        broker.wait_consumed("mailer")
    assert seen == [b"order 1", b"order 2"]


def test_time_does_not_run_backwards(broker: Broker) -> None:
    before = broker.now
    broker.advance(seconds=90)
    assert 90 <= (broker.now - before).total_seconds() < 90.1
    with pytest.raises(UsageError, match="time does not run backwards"):
        broker.advance(seconds=-1)


# -- asyncio -------------------------------------------------------------------------------------


async def await_all_that_waits() -> None:
    with Broker() as broker:
        async with escrowmq.aio.Producer(
            broker.nameserver, group="orders", check=commits, topics=["paid"]
        ) as producer:
            broker.lose_next_end()
            with pytest.raises(OutcomeUnknown):
                async with producer.transaction("paid", b"order 1"):
                    pass
            with pytest.raises(UsageError, match=r"await broker\.aio\.check_now"):
                broker.check_now()
            await broker.aio.restart()
            await broker.aio.check_now()
            await broker.aio.settle()
            assert await broker.aio.wait_delivered("paid") == [b"order 1"]
            await broker.aio.crash()
            await broker.aio.advance(seconds=1)
            seen: list[bytes] = []

            async def handle(message: escrowmq.aio.Delivery) -> None:
                seen.append(message.body)

            async with escrowmq.aio.Consumer(
                broker.nameserver, group="mailer", topic="paid", handler=handle
            ):
                await broker.aio.wait_consumed("mailer")
            assert seen == [b"order 1"]
            broker.kill(producer)
            with pytest.raises(ClientClosed):
                await producer.send("paid", b"order 2")


def test_all_that_waits_can_be_awaited() -> None:
    asyncio.run(await_all_that_waits())


# -- mistakes ------------------------------------------------------------------------------------


def test_a_setting_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UsageError, match="transactionTimeout"):
        Broker(settings={"transactionTimeout": "1"})


def test_what_needs_a_running_broker_says_so(broker: Broker) -> None:
    with pytest.raises(UsageError, match="already running"):
        broker.start()
    broker.stop()
    with pytest.raises(UsageError, match="the broker is stopped"):
        broker.delivered("paid")
    broker.start()


def test_a_client_behind_the_test_is_refused_and_reaches_nobody() -> None:
    with Broker() as broker:
        address = broker.nameserver
    with (
        escrowmq.Producer(address, group="orders", timeout_ms=300) as producer,
        pytest.raises(EscrowMQError, match="Connection refused"),
    ):
        producer.send("paid", b"order 1")


def test_a_forked_child_is_refused(broker: Broker) -> None:
    from escrowmq.net import dialling

    read, write = os.pipe()
    pid = os.fork()
    if not pid:  # pragma: no cover - in the child
        os.write(
            write, str(sum(gate is not None for gate in dialling._inside_servers.values())).encode()
        )
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(read, 10) == b"0"


# -- other processes -----------------------------------------------------------------------------

OTHER = """
import escrowmq
with escrowmq.Producer(group="orders") as producer:
    producer.send("paid", b"from another process")
"""


def test_another_process_reaches_a_broker_with_sockets(escrowmq_server: Broker) -> None:
    subprocess.run([sys.executable, "-c", OTHER], check=True, timeout=60)
    assert escrowmq_server.delivered("paid") == [b"from another process"]
    escrowmq_server.restart()
    assert escrowmq_server.delivered("paid") == [b"from another process"]


def test_a_broker_with_sockets_stays_registered_however_far_the_time_goes(
    escrowmq_server: Broker,
) -> None:
    """The name server's clock ran ahead of the registrations, and forgot the broker for good."""
    escrowmq_server.create_topic("paid")
    escrowmq_server.advance(hours=1)
    with escrowmq.Producer(escrowmq_server.nameserver, group="g", retries=0) as producer:
        producer.send("paid", b"an hour later")
    assert escrowmq_server.delivered("paid") == [b"an hour later"]


# -- the examples --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["broker", "accounts"])
def test_the_examples_in_docstrings_run(name: str) -> None:
    module = importlib.import_module(f"escrowmq.testing.kit.{name}")
    outcome = doctest.testmod(module, extraglobs={"escrowmq": escrowmq})
    assert outcome.attempted > 0
    assert outcome.failed == 0


# -- the plug-in ---------------------------------------------------------------------------------


@pytest.mark.escrowmq(settings={"defaultTopicQueueNums": "4"})
def test_the_marker_chooses_settings(escrowmq_broker: Broker) -> None:
    with escrowmq.Producer(group="orders") as producer:
        queues = {producer.send("paid", b"x").queue.queue_id for _ in range(8)}
    assert queues == {0, 1, 2, 3}


def test_a_failed_comparison_shows_what_was_there_instead(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import escrowmq, pytest
        def test_it(escrowmq_broker):
            with escrowmq.Producer(group="orders") as producer:
                producer.send("paid", b"order 1")
            assert escrowmq_broker.delivered("paid") == [b"order 2"]
        @pytest.mark.escrowmq(setting={})
        def test_wrong_marker(escrowmq_broker):
            pass
    """)
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(
        [
            "*assert [[]b'order 1'[]] == [[]b'order 2'[]]",
            "*delivered to 'paid': b'order 1'",
            "*pending: nothing",
        ]
    )
    result.stdout.fnmatch_lines("*takes settings= and accounts=, nothing else")
