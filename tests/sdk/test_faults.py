"""Servers that die, come back, or were never there; producers that are misused."""

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq
from escrowmq.errors import (
    ClientClosed,
    ClientForked,
    EscrowMQError,
    NoNameServer,
    OutcomeUnknown,
    RequestTimeout,
    RouteMissing,
    SendFailed,
)
from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.parts import Cluster
from tests.sdk.reading import delivered

pytestmark = pytest.mark.ours_alone

CHECKS = {"transactionTimeOut": 1_000, "transactionCheckInterval": 1_000}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path, flushDiskType="SYNC_FLUSH", **CHECKS)
    yield started
    started.kill()


def seen(cluster: Cluster, topic: str) -> list[bytes]:
    """The bodies in a topic of the cluster's first broker, repetitions included."""
    server = Server("escrow", Path(), nameserver=cluster.nameserver, broker=cluster.broker)
    return [message.body for message in delivered(server, topic)]


def test_what_was_confirmed_survives_a_killed_broker_and_sending_goes_on(
    cluster: Cluster,
) -> None:
    confirmed: list[bytes] = []
    refused: list[Exception] = []
    stop = threading.Event()

    def work(number: int, producer: escrowmq.Producer) -> None:
        count = 0
        while not stop.is_set():
            count += 1
            body = b"%d-%d" % (number, count)
            try:
                producer.send("T", body)
                confirmed.append(body)
            except (SendFailed, RequestTimeout) as error:
                refused.append(error)

    with escrowmq.Producer(cluster.nameserver, group="PG", timeout_ms=1_000) as producer:
        threads = [threading.Thread(target=work, args=(n, producer)) for n in range(4)]
        for thread in threads:
            thread.start()
        until("some sends", lambda: len(confirmed) > 100)
        cluster.brokers[0].kill()
        until("refusals", lambda: refused)
        before = len(confirmed)
        cluster.brokers[0].start()
        until("sending goes on", lambda: len(confirmed) > before + 100)
        stop.set()
        for thread in threads:
            thread.join(60)
    found = seen(cluster, "T")
    assert set(confirmed) <= set(found)
    assert "127.0.0.1" in str(refused[0]), "the refusal tells where"


def test_with_two_brokers_no_send_fails_when_one_dies(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, brokers_count=2)
    try:
        for part in cluster.brokers:
            fields = {"topic": "T", "readQueueNums": "4", "writeQueueNums": "4", "perm": "6"}
            assert wire.ask(part.address, 17, {**fields, "defaultTopic": "TBW102"}).code == 0
        with escrowmq.Producer(cluster.nameserver, group="PG", route_interval_ms=200) as producer:

            def uses(count: int) -> bool:
                names = {producer.send("T", b"x").queue.broker_name for _ in range(8)}
                return len(names) == count

            until("both brokers are used", lambda: uses(2))
            cluster.brokers[1].kill()
            for _ in range(100):
                assert producer.send("T", b"x").queue.broker_name == "broker-0"
            cluster.brokers[1].start()
            until("both brokers are used again", lambda: uses(2))
    finally:
        cluster.kill()


def test_a_name_server_that_dies_is_missed_by_new_topics_only(cluster: Cluster) -> None:
    with escrowmq.Producer(cluster.nameserver, group="PG") as producer:
        producer.send("T", b"1", timeout_ms=60_000)
        cluster.names.kill()
        producer.send("T", b"2", timeout_ms=60_000)
        with pytest.raises(NoNameServer, match=cluster.nameserver):
            producer.send("New", b"3")
        cluster.names.start()
        cluster.wait_registered(1)
        producer.send("T", b"4", timeout_ms=60_000)

        def send() -> bool:
            try:
                producer.send("New", b"3")
            except (RouteMissing, NoNameServer):
                return False
            return True

        until("the new topic", send)
    assert sorted(seen(cluster, "T")) == [b"1", b"2", b"4"]


def test_a_producer_started_before_its_name_server_begins_to_work_with_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    asked = threading.Event()

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        asked.set()
        return escrowmq.Outcome.COMMIT

    with (
        escrowmq.Producer(cluster.nameserver, group="PG", timeout_ms=60_000) as early,
        early.transaction("T", b"x") as tx,
    ):
        tx.detach()
    cluster.names.kill()
    with (
        caplog.at_level(logging.WARNING),
        escrowmq.Producer(cluster.nameserver, group="PG", check=check),
    ):
        assert any("none of 1 name servers" in line for line in caplog.messages)
        cluster.names.start()
        assert asked.wait(60), "it found the broker by itself and was asked"
    until("the commit", lambda: seen(cluster, "T") == [b"x"])


def test_a_commit_waits_for_a_broker_that_restarts(cluster: Cluster) -> None:
    with escrowmq.Producer(cluster.nameserver, group="PG", timeout_ms=60_000) as producer:
        tx = producer.transaction("T", b"x").begin()
        cluster.brokers[0].kill()
        ended: list[bool] = []

        def commit() -> None:
            tx.settle(escrowmq.Outcome.COMMIT)
            ended.append(True)

        thread = threading.Thread(target=commit)
        thread.start()
        cluster.brokers[0].start()
        thread.join(60)
        assert ended
        assert seen(cluster, "T") == [b"x"]


def test_a_restart_of_the_only_broker_fails_no_send(cluster: Cluster) -> None:
    # longer than a start takes on a busy machine: a send has no more time than this
    with escrowmq.Producer(cluster.nameserver, group="PG", timeout_ms=30_000) as producer:
        producer.send("T", b"x")
        failures: list[Exception] = []
        sent: list[int] = []
        is_over = threading.Event()

        def send() -> None:
            while not is_over.is_set():
                try:
                    producer.send("T", b"x")
                    sent.append(1)
                except escrowmq.errors.EscrowMQError as error:
                    failures.append(error)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for end in (cluster.brokers[0].kill, cluster.brokers[0].stop):
            before = len(sent)
            until("sends", lambda before=before: len(sent) > before + 100)  # type: ignore[misc]
            end()
            cluster.brokers[0].start()
        before = len(sent)
        until("sends go on", lambda: len(sent) > before + 100)
        is_over.set()
        for thread in threads:
            thread.join(30)
    assert not failures, failures[0]


def test_a_commit_that_nobody_confirms_raises_and_answers_the_brokers_check_itself(
    cluster: Cluster,
) -> None:
    asked: list[str] = []

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        asked.append(message.message_id)
        return escrowmq.Outcome.ROLLBACK

    with escrowmq.Producer(
        cluster.nameserver, group="PG", check=check, timeout_ms=3_000
    ) as producer:
        tx = producer.transaction("T", b"x").begin()
        cluster.brokers[0].kill()
        with pytest.raises(OutcomeUnknown, match="check-back"):
            tx.settle(escrowmq.Outcome.COMMIT)
        cluster.brokers[0].start()
        until("the commit", lambda: seen(cluster, "T") == [b"x"])
        assert not asked


FORKS = """
import os, sys
import escrowmq
from escrowmq.errors import ClientForked
producer = escrowmq.Producer(sys.argv[1], group="PG")
producer.send("T", b"parent")
child = os.fork()
if not child:
    try:
        producer.send("T", b"never")
    except ClientForked as error:
        assert "after the fork" in str(error)
        producer.close()
        with escrowmq.Producer(sys.argv[1], group="PG") as own:
            own.send("T", b"child")
        os._exit(0)
    os._exit(1)
assert os.waitpid(child, 0)[1] == 0
producer.send("T", b"parent again")
"""


def test_a_fork_is_told_so_and_makes_its_own(cluster: Cluster) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKS, cluster.nameserver]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(seen(cluster, "T")) == [b"child", b"parent", b"parent again"]
    assert issubclass(ClientForked, EscrowMQError)


LEFT_OPEN = """
import sys, threading
import escrowmq
def check(message):
    threading.Event().wait()
producer = escrowmq.Producer(sys.argv[1], group="PG", check=check)
with producer.transaction("T", b"x") as tx:
    tx.unknown()
started = threading.Event()
print("sent", flush=True)
"""


def test_a_process_ends_although_nobody_closed_its_producer(cluster: Cluster) -> None:
    command = [sys.executable, "-c", LEFT_OPEN, cluster.nameserver]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "sent\n", "")


def test_close_ends_calls_under_way_and_never_hangs(cluster: Cluster) -> None:
    producer = escrowmq.Producer(cluster.nameserver, group="PG", timeout_ms=60_000)
    producer.send("T", b"x")
    pid = cluster.brokers[0].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        outcomes: list[BaseException] = []

        def send() -> None:
            try:
                producer.send("T", b"y")
            except EscrowMQError as error:
                outcomes.append(error)

        thread = threading.Thread(target=send)
        thread.start()
        pool = producer._inner.instance.pool
        until(
            "the send is under way", lambda: any(c.waiting_count for c in pool.usable_connections())
        )
        producer.close()
        thread.join(30)
        assert len(outcomes) == 1
        with pytest.raises(ClientClosed):
            producer.send("T", b"z")
    finally:
        os.kill(pid, signal.SIGCONT)
