"""Offsets: codes 14, 15, 29 to 32 of on_offsets, and 43, 45, 222, 308, 314 of on_resets."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec import fastjson
from tests.harness.exchange import SMALL, START_MS, Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T", 2)
    return exchange


@pytest.fixture(name="client")
def make_client(exchange: Exchange) -> Caller:
    return exchange.connect()


def fields(group: str = "CG", topic: str = "T", queue_id: int = 0, **more: str) -> dict[str, str]:
    return {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), **more}


def commit(client: Caller, offset: int, **place: Any) -> Command:
    ext = fields(**place) | {"commitOffset": str(offset)}
    return client.ask(Request.UPDATE_CONSUMER_OFFSET, ext)


def query(client: Caller, *, zero: bool | None = None, **place: Any) -> tuple[int, str | None]:
    """Code and offset (or remark)."""
    ext = fields(**place)
    if zero is not None:
        ext["setZeroIfNotFound"] = "true" if zero else "false"
    reply = client.ask(Request.QUERY_CONSUMER_OFFSET, ext)
    return reply.code, (reply.ext or {}).get("offset", reply.remark)


# -- commit and query ----------------------------------------------------------------------------


def test_committed_offset_is_told(client: Caller) -> None:
    reply = commit(client, 5)
    assert (reply.code, reply.ext) == (0, None)
    assert query(client) == (0, "5")
    assert query(client, queue_id=1, zero=False)[0] == 22
    assert query(client, group="Other", zero=False)[0] == 22


def test_absent_offset_is_zero_only_where_the_whole_queue_is_in_memory() -> None:
    store = type(SMALL)(log_segment_size=1 << 20, memory_size=1_000, memory_percent=50)
    client = Exchange(store_settings=store).connect()
    not_zero = "Not found, do not set to zero, maybe this group boot first"
    assert query(client, zero=False) == (22, not_zero)
    assert query(client) == (0, "0")
    client.send("T")
    assert query(client) == (0, "0")
    client.send("T", bytes(1_000))
    remark = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
    assert query(client) == (22, remark)


def test_commit_of_an_unknown_group_or_topic_is_refused(exchange: Exchange) -> None:
    client = exchange.connect()
    reply = commit(client, 1, topic="X")
    assert (reply.code, reply.remark) == (17, "Topic X not exist!")
    exchange.settings.creates_groups = False
    reply = commit(client, 1, group="G2")
    assert (reply.code, reply.remark) == (26, "Group G2 not exist!")


@pytest.mark.parametrize(
    ("missing", "remark"),
    [
        ("queueId", "QueueId is null, topic is T"),
        ("commitOffset", "Offset is null, topic is T"),
    ],
)
@pytest.mark.parametrize("value", [None, "x", "9" * 30])
def test_commit_without_a_number_is_refused_with_29(
    client: Caller, missing: str, remark: str, value: str | None
) -> None:
    ext = fields(commitOffset="1")
    ext.pop(missing)
    if value is not None:
        ext[missing] = value
    reply = client.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    assert (reply.code, reply.remark) == (29, remark)


@pytest.mark.parametrize("queue_id", [2, 65_536, 2**31 - 1, -1])
def test_offsets_of_queues_that_are_not_there_are_not_kept(queue_id: int) -> None:
    for is_as_peer in (False, True):
        exchange = Exchange(BrokerSettings(places_as_rocketmq=is_as_peer))
        exchange.create_topic("T", 2)
        before = exchange.core.broker.offsets.content_to_save(log_end=0)
        reply = commit(exchange.connect(), 1, queue_id=queue_id)
        assert reply.code == (0 if is_as_peer else 29)
        assert (exchange.core.broker.offsets.content_to_save(log_end=0) != before) is is_as_peer


def test_offsets_beyond_the_limit_are_not_kept(
    exchange: Exchange, client: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixed_limits, "OFFSETS_MAX", 1)
    client.send("T")
    assert commit(client, 1).code == 0
    exchange.advance(10_000)
    for place in ({"group": "Other"}, {"queue_id": 1}):
        reply = commit(client, 1, **place)
        assert reply.code == 1
        assert "is not kept: " in (reply.remark or "")
        assert query(client, zero=False, **place)[0] == 22
    assert commit(client, 0).code == 0, "of a place that is kept"
    for group, kept in {"CG": (0, "1"), "Other": None}.items():
        for _ in range(3):
            more = {"commitOffset": "1", "sysFlag": "5"}
            assert client.pull("T", group=group, fields=more).code == 0
        assert kept is None or query(client, group=group) == kept
    assert query(client, group="Other", zero=False)[0] == 22
    client.heartbeat(consumer="Other", topics={"T": "*"})
    refused = client.pull("T", group="Other")
    assert refused.code == 1
    assert "the progress of Other is not kept" in (refused.remark or "")
    client.heartbeat(consumer="Casting", topics={"T": "*"}, model="BROADCASTING")
    assert client.pull("T", group="Casting").code == 0, "it keeps its own offsets"
    assert commit(client, 0, group="Other", topic="%RETRY%Other").code == 0
    fields_of_pop = {
        "consumerGroup": "Popper", "topic": "T", "queueId": "-1", "maxMsgNums": "8",
        "invisibleTime": "10000", "pollTime": "0", "bornTime": "0", "initMode": "0",
    }  # fmt: skip
    popped = client.ask(Request.POP_MESSAGE, fields_of_pop)
    assert popped.code == 1
    assert "the progress of Popper is not kept: " in (popped.remark or "")


@pytest.mark.parametrize("topic", ["RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"])
def test_progress_of_transactions_is_the_brokers_own(client: Caller, topic: str) -> None:
    reply = commit(client, 1, group="CID_RMQ_SYS_TRANS", topic=topic)
    assert reply.code == 16
    assert "the broker itself keeps the offsets" in (reply.remark or "")
    assert commit(client, 1, group="CG", topic=topic).code == 0, "as any group's in any topic"


def test_a_queue_that_its_topic_lost_is_read_to_its_end(exchange: Exchange, client: Caller) -> None:
    client.send("T", queue_id=1)
    exchange.create_topic("T", 1)
    assert commit(client, 1, queue_id=1).code == 0
    assert query(client, queue_id=1) == (0, "1")


# -- ends and times ------------------------------------------------------------------------------


def asked(client: Caller, code: int, **ext: str) -> int:
    reply = client.ask(code, {"topic": "T", "queueId": "0", **ext})
    assert reply.code == 0
    assert reply.ext is not None
    (value,) = reply.ext.values()
    return int(value)


def test_ends_of_a_queue(client: Caller) -> None:
    for _ in range(3):
        client.send("T")
    assert asked(client, Request.GET_MAX_OFFSET) == 3
    assert asked(client, Request.GET_MIN_OFFSET) == 0
    assert asked(client, Request.GET_EARLIEST_MSG_STORETIME) == START_MS
    assert asked(client, Request.GET_MAX_OFFSET, topic="X") == 0
    assert asked(client, Request.GET_MIN_OFFSET, topic="X") == 0
    assert asked(client, Request.GET_EARLIEST_MSG_STORETIME, topic="X") == -1
    reply = client.ask(Request.GET_MIN_OFFSET, {"topic": "T", "queueId": "0"})
    assert reply.remark == ""


def test_offset_at_a_time(exchange: Exchange, client: Caller) -> None:
    for _ in range(3):
        client.send("T")
        exchange.advance(1_000)
    search = Request.SEARCH_OFFSET_BY_TIMESTAMP

    def at(span_ms: int, boundary: str | None = None) -> int:
        ext = {"timestamp": str(START_MS + span_ms)}
        if boundary is not None:
            ext["boundaryType"] = boundary
        return asked(client, search, **ext)

    assert [at(-1), at(0), at(1), at(1_000), at(2_001)] == [0, 0, 1, 1, 3]
    assert [at(0, "UPPER"), at(1_500, "upper"), at(9_000, "UPPER")] == [0, 1, 2]
    assert at(1, "neither") == 1
    assert asked(client, search, topic="X", timestamp="0") == 0


@pytest.mark.parametrize("code", [14, 29, 30, 31, 32])
def test_missing_queue_is_answered_with_1(client: Caller, code: int) -> None:
    ext = {"consumerGroup": "CG", "topic": "T", "timestamp": "0"}
    assert client.ask(code, ext).code == 1


# -- what operators set --------------------------------------------------------------------------


def reset(client: Caller, timestamp: int, **more: str) -> Command:
    ext = {"topic": "T", "group": "CG", "timestamp": str(timestamp), "isForce": "true", **more}
    return client.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, ext)


def told(reply: Command) -> dict[int, int]:
    table = fastjson.decode_fastjson(reply.body)["offsetTable"]
    return {queue.queue_id: offset for queue, offset in fastjson.decode_queue_map(table).items()}


def test_group_is_set_to_a_time_to_the_end_and_to_an_offset(
    exchange: Exchange, client: Caller
) -> None:
    client.pull("T")
    for _ in range(3):
        client.send("T")
        exchange.advance(1_000)
    assert told(reset(client, START_MS + 500)) == {0: 1, 1: 0}
    assert query(client) == (0, "1")
    assert told(reset(client, -1)) == {0: 3, 1: 0}
    assert told(reset(client, -1, queueId="0", offset="2")) == {0: 2}
    assert query(client) == (0, "2")


def test_offsets_that_an_operator_has_set_survive_a_kill(
    exchange: Exchange, client: Caller
) -> None:
    for _ in range(3):
        client.send("T")
    commit(client, 3)
    exchange.advance(7_000)  # the file is saved
    reset(client, 0)
    ext = {"srcGroup": "CG", "destGroup": "New", "topic": "T", "offline": "true"}
    assert client.ask(Request.CLONE_GROUP_OFFSET, ext).code == 0
    exchange.crash()
    client = exchange.connect()
    assert query(client) == query(client, group="New") == (0, "0")
    commit(client, 2)
    exchange.advance(7_000)
    exchange.crash()
    assert query(exchange.connect()) == (0, "2"), "later commits count"


def test_a_reset_to_the_end_survives_a_kill(exchange: Exchange, client: Caller) -> None:
    for _ in range(3):
        client.send("T")
    commit(client, 1)
    exchange.advance(7_000)
    assert told(reset(client, -1)) == {0: 3, 1: 0}
    exchange.crash()
    assert query(exchange.connect()) == (0, "3")


def test_a_reset_does_not_come_back_after_its_topic_was_deleted(
    exchange: Exchange, client: Caller
) -> None:
    for _ in range(3):
        client.send("T")
    commit(client, 1)
    exchange.advance(7_000)
    reset(client, -1)
    assert client.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    exchange.create_topic("T", 2)
    for _ in range(5):
        client.send("T")
    exchange.crash()
    assert query(exchange.connect()) != (0, "3")


def test_reset_with_sync_flush_is_answered_when_it_is_durable() -> None:
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, is_sync_flush=True))
    exchange.create_topic("T")
    client = exchange.connect()
    client.send("T")
    commit(client, 1)
    exchange.holds_syncs = True
    ext = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
    pending = client.begin(Request.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    assert not pending
    exchange.sync()
    assert pending.now.code == 0


def test_reset_that_cannot_be_stored_changes_nothing(exchange: Exchange, client: Caller) -> None:
    client.send("T")
    commit(client, 1)
    exchange.disk.room = exchange.disk.used
    while client.send("T", bytes(3_000)).code == 0:
        pass
    assert reset(client, 0).code == 14
    assert query(client) == (0, "1")


def test_reset_that_was_not_told_yet_wins_over_commits(client: Caller) -> None:
    client.pull("T")
    client.send("T")
    commit(client, 1)
    reset(client, 0)
    reply = commit(client, 1)
    assert (reply.code, reply.remark) == (0, "Offset has been previously reset")
    assert query(client) == (0, "0")
    client.pull("T")
    commit(client, 1)
    assert query(client) == (0, "1")


def test_reset_is_refused_as_the_peer_refuses_it(client: Caller) -> None:
    reply = reset(client, 0)
    assert (reply.code, reply.remark) == (26, "Group CG does not exist")
    client.pull("T")
    reply = reset(client, 0, topic="X")
    assert (reply.code, reply.remark) == (17, "Topic X does not exist")
    client.send("T")
    reply = reset(client, 0, queueId="0", offset="2")
    assert (reply.code, reply.remark) == (1, "Target offset 2 not in consume queue range [0-1]")


def test_old_way_of_a_reset_tells_the_members_to_do_it() -> None:
    exchange = Exchange(BrokerSettings(resets_offsets_here=False))
    exchange.create_topic("T")
    client = exchange.connect()
    client.heartbeat(consumer="CG", topics={"T": "*"})
    client.send("T")
    reply = reset(client, -1)
    (request,) = client.take(Request.RESET_CONSUMER_CLIENT_OFFSET)
    assert request.flag == 2
    assert (request.ext or {})["group"] == "CG"
    assert request.body == reply.body
    assert query(client, zero=False)[0] == 22


def test_offsets_of_one_group_are_given_to_another(exchange: Exchange, client: Caller) -> None:
    exchange.create_topic("U")
    commit(client, 5)
    commit(client, 7, topic="U")
    ext = {"srcGroup": "CG", "destGroup": "New", "topic": "T", "offline": "true"}
    assert client.ask(Request.CLONE_GROUP_OFFSET, ext).code == 0
    assert query(client, group="New") == (0, "5")
    assert query(client, group="New", topic="U", zero=False)[0] == 22
    del ext["topic"]
    client.ask(Request.CLONE_GROUP_OFFSET, ext)
    assert query(client, group="New", topic="U") == (0, "7")


def test_live_group_gives_offsets_of_what_it_subscribes_to_alone(client: Caller) -> None:
    commit(client, 5)
    client.heartbeat(consumer="CG", topics={"Other": "*"})
    ext = {"srcGroup": "CG", "destGroup": "New", "offline": "false"}
    client.ask(Request.CLONE_GROUP_OFFSET, ext)
    assert query(client, group="New", zero=False)[0] == 22


def test_all_offsets_and_delay_offsets_are_shown(exchange: Exchange, client: Caller) -> None:
    commit(client, 5)
    commit(client, 6, queue_id=1)
    body = fastjson.decode_fastjson(client.ask(Request.GET_ALL_CONSUMER_OFFSET).body)
    assert body["offsetTable"]["T@CG"] == {"0": 5, "1": 6}
    assert body["groupTopicMap"]["CG"] == ["T"]
    client.send("T", DELAY="1")
    exchange.advance(2_000)
    body = fastjson.decode_fastjson(client.ask(Request.GET_ALL_DELAY_OFFSET).body)
    assert body["offsetTable"]["1"] == 1


def test_correction_is_the_lowest_offset_of_the_other_groups(client: Caller) -> None:
    for group, offset in (("CG", 9), ("G1", 5), ("G2", 3)):
        commit(client, offset, group=group)
    ext = {"compareGroup": "CG", "topic": "T", "filterGroups": ""}
    body = fastjson.decode_fastjson(client.ask(Request.QUERY_CORRECTION_OFFSET, ext).body)
    assert body == {"correctionOffsets": {"0": 3}}
    ext["filterGroups"] = "G2"
    body = fastjson.decode_fastjson(client.ask(Request.QUERY_CORRECTION_OFFSET, ext).body)
    assert body == {"correctionOffsets": {"0": 5}}
