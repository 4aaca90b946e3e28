"""What a slave serves, and with which words it sends everybody else to its master."""

from __future__ import annotations

from typing import Final

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.broker.replication.slave_requests import MASTER_ONLY
from escrowmq.broker.requests.request_table import request_rows
from tests.harness.exchange import COMMIT
from tests.harness.pair import Pair

_R: Final = Request
SERVED: Final = frozenset(
    {
        _R.PULL_MESSAGE, _R.LITE_PULL_MESSAGE, _R.QUERY_CONSUMER_OFFSET, _R.UPDATE_CONSUMER_OFFSET,
        _R.SEARCH_OFFSET_BY_TIMESTAMP, _R.GET_MAX_OFFSET, _R.GET_MIN_OFFSET,
        _R.GET_EARLIEST_MSG_STORETIME, _R.QUERY_ASSIGNMENT, _R.GET_ALL_MESSAGE_REQUEST_MODE,
        _R.QUERY_MESSAGE, _R.VIEW_MESSAGE_BY_ID, _R.GET_ROUTEINFO_BY_TOPIC,
        _R.GET_CONSUMER_RUNNING_INFO, _R.CONSUME_MESSAGE_DIRECTLY,
        _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, _R.HEART_BEAT, _R.UNREGISTER_CLIENT,
        _R.GET_CONSUMER_LIST_BY_GROUP, _R.LOCK_BATCH_MQ, _R.UNLOCK_BATCH_MQ,
        _R.CHECK_CLIENT_CONFIG, _R.GET_ALL_TOPIC_CONFIG, _R.GET_TOPIC_CONFIG,
        _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        _R.GET_SUBSCRIPTIONGROUP_CONFIG, _R.GET_ALL_CONSUMER_OFFSET, _R.GET_ALL_DELAY_OFFSET,
        _R.GET_TOPIC_STATS_INFO, _R.GET_CONSUME_STATS, _R.QUERY_TOPIC_CONSUME_BY_WHO,
        _R.QUERY_CONSUME_TIME_SPAN, _R.VIEW_BROKER_STATS_DATA, _R.GET_BROKER_CONSUME_STATS,
        _R.QUERY_CONSUME_QUEUE, _R.QUERY_TOPICS_BY_CONSUMER, _R.GET_CONSUMER_CONNECTION_LIST,
        _R.GET_PRODUCER_CONNECTION_LIST, _R.GET_ALL_PRODUCER_INFO,
        _R.QUERY_SUBSCRIPTION_BY_CONSUMER, _R.UPDATE_BROKER_CONFIG, _R.GET_BROKER_CONFIG,
        _R.GET_BROKER_RUNTIME_INFO, _R.DELETE_EXPIRED_COMMITLOG, _R.GET_BROKER_HA_STATUS,
        _R.GET_COLD_DATA_FLOW_CTR_INFO, _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _R.SET_COMMITLOG_READ_MODE,
        _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, _R.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        _R.GET_TIMER_CHECK_POINT, _R.GET_TIMER_METRICS, _R.NOTIFY_MIN_BROKER_ID_CHANGE,
        _R.RESET_MASTER_FLUSH_OFFSET, _R.GET_BROKER_EPOCH_CACHE, _R.NOTIFY_BROKER_ROLE_CHANGED,
        _R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG, _R.GET_BROKER_CLUSTER_ACL_INFO,
        _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, _R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER,
        _R.AUTH_DELETE_USER, _R.AUTH_GET_USER, _R.AUTH_LIST_USER, _R.AUTH_CREATE_ACL,
        _R.AUTH_UPDATE_ACL, _R.AUTH_DELETE_ACL, _R.AUTH_GET_ACL, _R.AUTH_LIST_ACL,
        _R.ESCROW_ACL_EXPLAIN, _R.ESCROW_SESSION, _R.ESCROW_REPLICA_STATE, _R.ESCROW_FOLLOW,
        _R.ESCROW_GROUP_STATUS, _R.ESCROW_GROUP_SWITCH, _R.ESCROW_GROUP_REBUILD,
        _R.ESCROW_GROUP_DRILL, _R.CONTROLLER_GET_METADATA_INFO, _R.CONTROLLER_GET_SYNC_STATE_DATA,
    }
)  # fmt: skip
"""What reads, and what is about this broker itself: its settings, accounts and connections."""


def copied(replica: ReplicaSettings | None = None) -> Pair:
    """A pair with ten messages in two queues, all copied."""
    pair = Pair(slave=replica)
    caller = pair.master.connect()
    for number in range(10):
        caller.send("orders", b"body %d" % number, queue_id=number % 2)
    pair.introduce()
    pair.advance(3_000)
    return pair


def test_every_request_is_the_masters_or_served() -> None:
    known = {row.code for row in request_rows()}
    assert not MASTER_ONLY & SERVED
    assert known == MASTER_ONLY | SERVED


@pytest.mark.parametrize("code", sorted(MASTER_ONLY))
def test_the_masters_work_is_refused_with_a_code_that_clients_retry(code: int) -> None:
    reply = copied().slave.connect().ask(code, {"topic": "orders"})
    assert reply.code == Response.SERVICE_NOT_AVAILABLE
    assert "slave" in (reply.remark or "")


def test_sends_and_ends_change_nothing() -> None:
    pair = copied()
    store = pair.slave.core.broker.store
    end = store.end_offset
    caller = pair.slave.connect()
    assert caller.send("orders").code == Response.SERVICE_NOT_AVAILABLE
    producer = pair.master.connect()
    producer.heartbeat(producer="p")
    half = producer.prepare("orders", b"half", group="p")
    pair.advance(100)
    end = store.end_offset
    assert caller.end(half, COMMIT).code == Response.SERVICE_NOT_AVAILABLE
    pair.advance(60_000)  # and nobody is asked about it by the slave
    assert store.end_offset == pair.master.core.broker.store.end_offset >= end


def test_pulls_are_refused_as_at_rocketmq_unless_they_are_wanted() -> None:
    reply = copied().slave.connect().pull("orders")
    assert reply.code == Response.SYSTEM_BUSY
    assert reply.remark == "[REJECTREQUEST]system busy, start flow control for a while"


def test_pulls_are_served_where_they_are_wanted() -> None:
    pair = copied(ReplicaSettings(role="SLAVE", slave_reads=True))
    caller = pair.slave.connect()
    assert caller.bodies("orders") == [b"body %d" % n for n in range(0, 10, 2)]
    for offset in (5, 6, 100):  # at the end and behind it: the master may have more
        reply = caller.pull("orders", offset)
        assert reply.code == Response.PULL_RETRY_IMMEDIATELY
        assert (reply.ext or {})["suggestWhichBrokerId"] == "0"


def test_a_pull_at_a_slave_commits_no_offset() -> None:
    pair = copied(ReplicaSettings(role="SLAVE", slave_reads=True))
    caller = pair.slave.connect()
    fields = {"sysFlag": "5", "commitOffset": "3"}  # the offset, and the subscription
    assert caller.pull("orders", 3, fields=fields).code == Response.SUCCESS
    assert pair.slave.core.broker.offsets.get("CG", "orders", 0) == -1


def test_queries_are_served() -> None:
    pair = copied()
    reply = pair.slave.connect().ask(
        Request.GET_MAX_OFFSET, {"topic": "orders", "queueId": "1", "committed": "true"}
    )
    assert (reply.ext or {})["offset"] == "5"
    stats = pair.slave.connect().ask(Request.GET_TOPIC_STATS_INFO, {"topic": "orders"})
    assert stats.code == 0
    found = pair.slave.connect().ask(Request.GET_BROKER_RUNTIME_INFO)
    table = msgspec.json.decode(found.body)["table"]
    assert table["commitLogMaxOffset"] == str(pair.master.core.broker.store.end_offset)
