"""The outbox at a broker of Apache RocketMQ: several messages are transactions of their own, which
one marker answers for."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import escrowmq
from escrowmq.integrations.dbapi import Outbox
from escrowmq.integrations.dbapi.addresses import make_connector
from tests.interop import jars
from tests.interop.process import until
from tests.interop.servers import Server, new_topic
from tests.sdk.reading import bodies

from .conftest import Place
from .test_check_from_db import DIES, address_of

pytestmark = pytest.mark.interop


@pytest.fixture(scope="module")
def rocketmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if missing := jars.missing_tools("java", "mvn", "cc"):
        pytest.skip(f"not on this machine: {missing}")
    settings = {"transactionTimeOut": 1_000, "transactionCheckInterval": 4_000}
    made = Server("java", tmp_path_factory.mktemp("rocketmq"), settings).start()
    yield made
    made.kill()


def test_all_messages_are_delivered_or_none(
    rocketmq: Server, group: str, new_place: Callable[[str], Place]
) -> None:
    topic = new_topic(rocketmq, f"T-{group}")
    connect = make_connector(address_of(new_place("sqlite")))
    connection = connect()
    with escrowmq.Producer(rocketmq.nameserver, group=group) as producer:
        outbox = Outbox(producer, connect)
        outbox.create_tables()
        with outbox.transaction(connection) as tx:
            for body in (b"1", b"2", b"3"):
                tx.send(topic, body)
        with pytest.raises(KeyError), outbox.transaction(connection) as tx:
            tx.send(topic, b"never")
            raise KeyError
        # RocketMQ's broker may ask about what has ended for some seconds more, and delivers what it
        # is told to commit then once more.
        expected = {b"1", b"2", b"3"}
        until("all", lambda: set(bodies(rocketmq, topic)) >= expected)
        assert set(bodies(rocketmq, topic)) == expected
        assert outbox.forget_markers() == 0
    connection.close()


def test_what_a_dead_process_left_open_is_answered_from_the_marker(
    rocketmq: Server, group: str, new_place: Callable[[str], Place]
) -> None:
    topic = new_topic(rocketmq, f"T-{group}")
    address = address_of(new_place("sqlite"))
    with escrowmq.Producer(rocketmq.nameserver, group=group) as producer:
        Outbox(producer, make_connector(address)).create_tables()
    for where in ("after", "before"):
        command = [sys.executable, "-c", DIES, rocketmq.nameserver, group, topic, address, where]
        assert subprocess.run(command, check=False, timeout=60).returncode == -9
    with escrowmq.Producer(rocketmq.nameserver, group=group) as producer:
        Outbox(producer, make_connector(address))
        until("the message", lambda: bodies(rocketmq, topic), within_s=90)
    assert set(bodies(rocketmq, topic)) == {b"after"}
