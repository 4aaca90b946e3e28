"""Who has a port for slaves, and which one; what of RocketMQ's roles cannot be."""

from __future__ import annotations

import pytest

from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.errors import UsageError
from escrowmq.node.broker_ports import bind_replication_port
from escrowmq.node.config import read_replica_settings


def of(**found: str) -> ReplicaSettings | None:
    return read_replica_settings(found, source="--set")


def test_a_broker_whose_settings_say_nothing_of_copies_is_alone() -> None:
    assert of() is None
    assert of(brokerName="b", flushDiskType="SYNC_FLUSH", slaveReadEnable="true") is None


@pytest.mark.parametrize(
    "found",
    [{"brokerRole": "ASYNC_MASTER"}, {"haListenPort": "10912"}, {"inSyncReplicas": "2"}],
)
def test_whatever_asks_for_copies_opens_the_port(found: dict[str, str]) -> None:
    assert read_replica_settings(found, source="--set") is not None


def test_rocketmqs_keys() -> None:
    found = of(
        brokerRole="SYNC_MASTER",
        inSyncReplicas="2",
        slaveTimeout="500",
        brokerIP2="10.0.0.9",
        haSendHeartbeatInterval="1000",
    )
    assert found is not None
    assert (found.copies, found.slave_timeout_ms, found.ha_host) == (2, 500, "10.0.0.9")
    assert found.heartbeat_ms == 1_000


def test_an_async_master_waits_for_no_copies() -> None:
    found = of(brokerRole="ASYNC_MASTER", inSyncReplicas="3")
    assert found is not None
    assert found.copies == 1


@pytest.mark.parametrize(
    ("found", "word"),
    [
        ({"brokerRole": "SLAVE"}, "needs a brokerId"),
        ({"brokerRole": "SLAVE", "brokerId": "0"}, "needs a brokerId"),
        ({"brokerRole": "SLAVE", "brokerId": "-1"}, "needs a brokerId"),
        ({"brokerRole": "FOO"}, "ASYNC_MASTER, SYNC_MASTER, SLAVE"),
        ({"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "x"}, "HOST:PORT"),
        ({"haListenPort": "70000"}, "haListenPort"),
    ],
)
def test_what_cannot_be_is_refused_with_a_word(found: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read_replica_settings(found, source="--set")


def test_the_port_is_the_one_behind_that_of_clients() -> None:
    with bind_replication_port(ReplicaSettings(), host="127.0.0.1", port=0) as free:
        port = int(free.getsockname()[1])
    with bind_replication_port(ReplicaSettings(), host="127.0.0.1", port=port - 1) as found:
        assert found.getsockname()[1] == port
    wanted = ReplicaSettings(ha_port=port, ha_bind="127.0.0.1")
    with bind_replication_port(wanted, host="0.0.0.0", port=1) as found:
        assert found.getsockname() == ("127.0.0.1", port)
