"""Members of other languages in one group with ours, and RocketMQ's own tools about ours."""

from collections.abc import Iterator

import pytest

import escrowmq
from tests.interop import jars
from tests.interop.drivers import JavaDriver, unique
from tests.interop.process import until
from tests.interop.servers import Server

from .test_consume import FAST, Seen, numbered, send

MISSING = jars.missing_tools("java", "javac", "mvn")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaDriver]:
    """The official Java client."""
    started = JavaDriver("5.3.3", tmp_path_factory.mktemp("driver"))
    yield started
    started.stop()


@pytest.fixture
def java(driver: JavaDriver) -> Iterator[JavaDriver]:
    """The same, with no client left open after a test."""
    yield driver
    driver.close_clients()


@pytest.mark.parametrize("is_orderly", [False, True])
def test_a_java_member_and_ours_share_the_queues(
    server: Server, topic: str, java: JavaDriver, is_orderly: bool
) -> None:
    group = unique("CG")
    seen = Seen()
    ours = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=seen, is_orderly=is_orderly, **FAST
    )
    with ours:
        until("all queues", lambda: len(ours.queues()) == 4)
        theirs = java.consumer(
            server.nameserver, topic, group=group, is_orderly=is_orderly,
            consumeFromWhere="CONSUME_FROM_FIRST_OFFSET",
        )  # fmt: skip
        until("half of the queues", lambda: len(ours.queues()) == 2)
        send(server, topic, numbered(40))
        until("all", lambda: len(seen.bodies()) + len(theirs.received()) >= 40)
        got = [message.body for message in theirs.received()]
        assert seen.bodies()
        assert got
        theirs.close(wait=True)
        until("all queues", lambda: len(ours.queues()) == 4)
        send(server, topic, [b"after"])
        until("the last", lambda: b"after" in seen.bodies())
    everything = {*seen.bodies()} | {_bytes(body) for body in got}
    assert everything == {*numbered(40), b"after"}
    # a queue changes hands with what is under way: so much may come twice, and no more
    assert len(seen.bodies()) + len(got) <= 41 + 10


def test_a_java_member_goes_on_where_ours_stopped(
    server: Server, topic: str, java: JavaDriver
) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, numbered(8))
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        seen.wait(8)
    theirs = java.consumer(server.nameserver, topic, group=group)
    send(server, topic, [b"new"])
    assert [_bytes(message.body) for message in theirs.received(1)] == [b"new"]


def test_what_failed_at_java_comes_to_ours(server: Server, topic: str, java: JavaDriver) -> None:
    group = unique("CG")
    send(server, topic, [b"x"], keys=["k"])
    theirs = java.consumer(server.nameserver, topic, group=group, failures={"k": 100})
    theirs.received(2)  # the second time is a retry, so that the first is settled
    theirs.close(wait=True)
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        seen.wait(1)
    (message, *_) = seen.messages
    assert (message.body, message.topic) == (b"x", topic)
    assert message.deliveries_before >= 1


def test_mqadmin_sees_and_steers_our_consumer(server: Server, topic: str, java: JavaDriver) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, numbered(4), keys=["k"])
    consumer = escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=seen, pull_wait_ms=1_000, **FAST
    )
    with consumer:
        seen.wait(4)
        shown = java.mqadmin("consumerConnection", "-n", server.nameserver, "-g", group)
        assert "CONSUME_FROM_FIRST_OFFSET" in shown
        assert "Rebalance OK" in java.mqadmin(
            "consumerStatus", "-n", server.nameserver, "-g", group
        )
        client_id = consumer._inner.instance.client_id
        assert client_id in shown
        status = java.mqadmin(
            "consumerStatus", "-n", server.nameserver, "-g", group, "-i", client_id
        )
        assert topic in status
        assert "PROP_CONSUMEORDERLY" in status
        until(
            "no lag",
            lambda: (
                "Consume Diff Total: 0"
                in java.mqadmin("consumerProgress", "-n", server.nameserver, "-g", group)
            ),
        )
        java.mqadmin(
            "resetOffsetByTime", "-n", server.nameserver, "-g", group, "-t", topic, "-s", "0"
        )
        seen.wait(8)


def test_the_admin_library_reads_our_consumers_offsets(
    server: Server, topic: str, java: JavaDriver
) -> None:
    group = unique("CG")
    seen = Seen()
    send(server, topic, numbered(8))
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen, **FAST):
        seen.wait(8)
        admin = java.admin(server.nameserver)
        status = admin.call("getConsumeStatus", topic, group, "")
        offsets = [offset for table in status.values() for offset in table.values()]
        assert sum(offsets) == 8
        admin.close()


def _bytes(body: bytes | str) -> bytes:
    return body.encode() if isinstance(body, str) else body
