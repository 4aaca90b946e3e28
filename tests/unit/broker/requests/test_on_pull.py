from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import FAQ, Request
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import PULL_SIZE_MAX
from escrowmq.base.store_settings import StoreSettings
from escrowmq.codec.record import decode_records
from tests.harness.exchange import SMALL, Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T")
    return exchange


@pytest.fixture(name="client")
def make_client(exchange: Exchange) -> Caller:
    return exchange.connect()


def offsets(reply: Command) -> tuple[int, int, int]:
    ext = reply.ext or {}
    return int(ext["nextBeginOffset"]), int(ext["minOffset"]), int(ext["maxOffset"])


def bodies(reply: Command) -> list[bytes]:
    return [message.body for message in decode_records(reply.body)]


# -- what is found -------------------------------------------------------------------------------


def test_pull_returns_the_records_as_they_lie_in_the_log(client: Caller) -> None:
    for body in (b"a", b"b", b"c"):
        client.send("T", body)
    reply = client.pull("T", 1)
    assert (reply.code, reply.remark) == (0, "FOUND")
    assert bodies(reply) == [b"b", b"c"]
    assert offsets(reply) == (3, 0, 3)
    assert reply.ext == {
        "suggestWhichBrokerId": "0",
        "nextBeginOffset": "3",
        "minOffset": "0",
        "maxOffset": "3",
        "topicSysFlag": "0",
        "groupSysFlag": "0",
    }


def test_what_a_connection_asks_again_is_answered_as_the_first_time(client: Caller) -> None:
    for number in range(40):
        client.send("T", b"%d" % number)
    client.is_binary = True
    for at in (0, 10, 11, 0, 36):
        found = client.pull("T", at, fields={"maxMsgNums": "4", "commitOffset": str(at)})
        assert bodies(found) == [b"%d" % number for number in range(at, at + 4)]
        assert offsets(found) == (at + 4, 0, 40)
    assert client.pull("T", 40).remark == "OFFSET_OVERFLOW_ONE"
    assert client.pull("T", 99).remark == "OFFSET_OVERFLOW_BADLY"
    refused = client.pull("T", 0, fields={"maxMsgNums": "4", "queueId": "9"})
    assert "queueId[9] is illegal" in (refused.remark or "")


def test_no_more_than_the_wanted_number_is_returned(client: Caller) -> None:
    for number in range(5):
        client.send("T", b"%d" % number)
    assert bodies(client.pull("T", 0, fields={"maxMsgNums": "2"})) == [b"0", b"1"]


def test_no_more_than_the_wanted_bytes_are_returned_but_at_least_one_message(
    client: Caller,
) -> None:
    for number in range(5):
        client.send("T", b"%d" % number * 1000)
    assert len(bodies(client.pull("T", 0, fields={"maxMsgBytes": "2600"}))) == 2
    assert len(bodies(client.pull("T", 0, fields={"maxMsgBytes": "1"}))) == 1


def test_reply_fits_a_frame_whatever_the_client_wants() -> None:
    store = type(SMALL)(log_segment_size=64 << 20, reserve_size=0)
    exchange = Exchange(store_settings=store)
    client = exchange.connect()
    for _ in range(6):
        assert client.send("T", bytes(4_000_000)).code == 0
    reply = client.pull("T", 0, fields={"maxMsgBytes": str(1 << 30)})
    assert reply.code == 0
    assert 1 <= len(bodies(reply)) <= 4


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize(
    ("stored", "offset", "code", "remark", "next_offset"),
    [
        (0, 0, 19, "NO_MESSAGE_IN_QUEUE", 0),
        (0, 5, 21, "NO_MESSAGE_IN_QUEUE", 0),
        (2, 2, 19, "OFFSET_OVERFLOW_ONE", 2),
        (2, 3, 21, "OFFSET_OVERFLOW_BADLY", 2),
        (2, -1, 21, "OFFSET_TOO_SMALL", 0),
    ],
)
def test_status_of_a_pull_that_finds_nothing(
    client: Caller,
    is_binary: bool,
    stored: int,
    offset: int,
    code: int,
    remark: str,
    next_offset: int,
) -> None:
    client.is_binary = is_binary
    for _ in range(stored):
        client.send("T")
    reply = client.pull("T", offset)
    assert (reply.code, reply.remark, offsets(reply)[0]) == (code, remark, next_offset)
    assert reply.body == b""


def test_filter_that_matches_nothing_is_answered_with_20_and_goes_on_behind(
    client: Caller,
) -> None:
    client.send("T", TAGS="a")
    client.send("T", TAGS="b")
    reply = client.pull("T", 0, expression="c", hold_ms=10_000)
    assert (reply.code, reply.remark) == (20, "NO_MATCHED_MESSAGE")
    assert offsets(reply)[0] == 2


def test_tags_select(client: Caller) -> None:
    for tag in ("a", "b", "c"):
        client.send("T", tag.encode(), TAGS=tag)
    client.send("T", b"none")
    assert bodies(client.pull("T", expression="a || c")) == [b"a", b"c"]
    assert bodies(client.pull("T", expression="*")) == [b"a", b"b", b"c", b"none"]
    assert bodies(client.pull("T", expression="")) == [b"a", b"b", b"c", b"none"]


def test_sql_selects_where_it_is_enabled() -> None:
    exchange = Exchange(BrokerSettings(has_property_filter=True))
    client = exchange.connect()
    for number in range(4):
        client.send("T", b"%d" % number, n=str(number))
    reply = client.pull("T", expression="n > 1", fields={"expressionType": "SQL92"})
    assert bodies(reply) == [b"2", b"3"]


# -- refusals ------------------------------------------------------------------------------------


def refused(reply: Command, code: int, remark: str, forbidden: int | None = None) -> None:
    assert (reply.code, reply.remark) == (code, remark)
    assert (reply.ext or {}).get("forbiddenType") == (str(forbidden) if forbidden else None)
    assert offsets(reply) == (0, 0, 0)
    assert reply.body == b""


def test_broker_without_read_permission_refuses(exchange: Exchange, client: Caller) -> None:
    exchange.settings.permission = 2
    refused(client.pull("T"), 16, "the broker[127.0.0.1] pulling message is forbidden", 1)


def test_lite_pull_may_be_forbidden(exchange: Exchange, client: Caller) -> None:
    fields = {
        "consumerGroup": "CG", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "20", "subscription": "*",
    }  # fmt: skip
    assert client.ask(Request.LITE_PULL_MESSAGE, fields).code == 19
    exchange.settings.allows_lite_pull = False
    reply = client.ask(Request.LITE_PULL_MESSAGE, fields)
    refused(reply, 16, "the broker[127.0.0.1] for lite pull consumer is forbidden", 1)
    assert client.pull("T").code == 19


def test_unknown_group_is_refused_where_none_is_created(exchange: Exchange, client: Caller) -> None:
    exchange.settings.creates_groups = False
    refused(client.pull("T"), 26, f"subscription group [CG] does not exist, {FAQ}")


def test_disabled_group_is_refused(exchange: Exchange, client: Caller) -> None:
    client.pull("T")
    config = exchange.core.broker.groups.find("CG")
    assert config is not None
    groups = exchange.core.broker.groups
    groups.put(msgspec.structs.replace(config, consume_enable=False), exchange.now_ms)
    refused(client.pull("T"), 16, "subscription group no permission, CG", 2)


def test_unknown_topic_is_refused(client: Caller) -> None:
    refused(client.pull("X"), 17, f"topic[X] not exist, apply first please! {FAQ}")


def test_topic_that_is_not_readable_is_refused(exchange: Exchange, client: Caller) -> None:
    exchange.create_topic("W", perm="2")
    refused(client.pull("W"), 16, "the topic[W] pulling message is forbidden", 3)


@pytest.mark.parametrize("queue_id", [-1, 1, 99])
def test_queue_that_the_topic_does_not_have_is_refused(client: Caller, queue_id: int) -> None:
    remark = (
        f"queueId[{queue_id}] is illegal, topic:[T] topicConfig.readQueueNums:[1] "
        "consumer:[10.0.0.9:40002]"
    )
    refused(client.pull("T", queue_id=queue_id), 29, remark)


def test_expression_that_does_not_parse_is_refused(exchange: Exchange, client: Caller) -> None:
    exchange.settings.has_property_filter = True
    reply = client.pull("T", expression="n >", fields={"expressionType": "SQL92"})
    refused(reply, 23, "parse the consumer's subscription failed")


def test_sql_is_refused_where_it_is_not_enabled(client: Caller) -> None:
    reply = client.pull("T", expression="n > 1", fields={"expressionType": "SQL92"})
    refused(reply, 1, "The broker does not support consumer to filter message by SQL92")


def test_pull_without_subscription_wants_a_live_group_that_subscribes(client: Caller) -> None:
    none = "the consumer's group info not exist" + FAQ
    refused(client.pull("T", expression=None), 24, none)
    client.heartbeat(consumer="CG", topics={"Other": "*"})
    other = "the consumer's subscription not exist" + FAQ
    refused(client.pull("T", expression=None), 24, other)
    client.heartbeat(consumer="CG", topics={"T": "a"}, sub_version=5)
    client.send("T", b"a", TAGS="a")
    client.send("T", b"b", TAGS="b")
    assert bodies(client.pull("T", expression=None, fields={"subVersion": "5"})) == [b"a"]
    newer = client.pull("T", expression=None, fields={"subVersion": "6"})
    refused(newer, 25, "the consumer's subscription not latest")


def test_broadcasting_group_may_be_forbidden(exchange: Exchange, client: Caller) -> None:
    client.heartbeat(consumer="CG", topics={"T": "*"}, model="BroadCasting")
    assert client.pull("T", expression=None).code == 19  # it may, and finds nothing
    config = exchange.core.broker.groups.find("CG")
    assert config is not None
    groups = exchange.core.broker.groups
    groups.put(msgspec.structs.replace(config, consume_broadcast_enable=False), exchange.now_ms)
    remark = "the consumer group[CG] can not consume by broadcast way"
    refused(client.pull("T", expression=None), 16, remark, 4)


def test_group_that_is_forbidden_a_topic_is_refused(client: Caller) -> None:
    client.heartbeat(consumer="CG", topics={"T": "*"})
    wish = {"group": "CG", "topic": "T", "readable": "false"}
    client.ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, wish)
    remark = "the consumer group[CG] is forbidden for topic[T]"
    refused(client.pull("T", expression=None), 16, remark, 5)
    client.ask(Request.UPDATE_AND_GET_GROUP_FORBIDDEN, {**wish, "readable": "true"})
    assert client.pull("T", expression=None).code == 19


def test_subscription_that_cannot_be_compiled_is_refused_with_27(client: Caller) -> None:
    client.exchange.settings.has_property_filter = True
    client.heartbeat(consumer="CG", topics={"T": "n >"}, expression_type="SQL92")
    reply = client.pull("T", expression=None, fields={"expressionType": "SQL92"})
    remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
    refused(reply, 27, remark)


def test_pulls_of_groups_that_are_not_online_may_be_rejected(
    exchange: Exchange, client: Caller
) -> None:
    exchange.settings.rejects_unknown_pulls = True
    remark = "the consumer's group info not exist, or the pull consumer is rejected by server."
    refused(client.pull("T"), 24, remark + FAQ)
    client.heartbeat(consumer="CG", topics={"T": "*"})
    assert client.pull("T").code == 19


@pytest.mark.parametrize("field", ["queueId", "queueOffset", "maxMsgNums", "sysFlag"])
def test_unparsable_number_is_answered_with_1(client: Caller, field: str) -> None:
    assert client.pull("T", fields={field: "x"}).code == 1


@pytest.mark.parametrize("count", ["0", "-5", "99999999999999999999"])
def test_odd_numbers_of_messages_do_no_harm(client: Caller, count: str) -> None:
    client.send("T", b"a")
    reply = client.pull("T", fields={"maxMsgNums": count})
    assert reply.code in (0, 1, 19, 20)
    assert client.bodies("T") == [b"a"]


# -- long polls ----------------------------------------------------------------------------------


def test_held_pull_is_answered_when_a_message_arrives(exchange: Exchange, client: Caller) -> None:
    pending = client.begin_pull("T", hold_ms=15_000)
    other = client.begin_pull("T", hold_ms=15_000, group="Other")
    exchange.advance(14_000)
    assert not pending
    exchange.connect().send("T", b"news")
    assert bodies(pending.now) == [b"news"]
    assert bodies(other.now) == [b"news"]


def test_held_pull_is_answered_with_19_when_its_time_is_over(
    exchange: Exchange, client: Caller
) -> None:
    pending = client.begin_pull("T", hold_ms=15_000)
    exchange.advance(14_999)
    assert not pending
    exchange.advance(1)
    assert (pending.now.code, pending.now.remark) == (19, "NO_MESSAGE_IN_QUEUE")
    exchange.advance(60_000)  # and is not answered again


def test_pull_without_the_wish_to_wait_is_not_held(client: Caller) -> None:
    assert client.pull("T").code == 19


def test_wrong_offset_is_told_at_once_instead_of_held(client: Caller) -> None:
    client.send("T")
    assert client.begin_pull("T", 5, hold_ms=15_000).now.code == 21


def test_without_long_polling_a_pull_is_held_for_a_short_time(
    exchange: Exchange, client: Caller
) -> None:
    exchange.settings.holds_pulls = False
    pending = client.begin_pull("T", hold_ms=15_000)
    exchange.advance(999)
    assert not pending
    exchange.advance(1)
    assert pending.now.code == 19


def test_held_pull_waits_for_a_tag_that_it_wants(exchange: Exchange, client: Caller) -> None:
    pending = client.begin_pull("T", hold_ms=15_000, expression="a")
    sender = exchange.connect()
    sender.send("T", b"b", TAGS="b")
    assert not pending
    sender.send("T", b"a", TAGS="a")
    assert bodies(pending.now) == [b"a"]


def test_held_pull_waits_for_properties_that_it_wants(exchange: Exchange, client: Caller) -> None:
    exchange.settings.has_property_filter = True
    pending = client.begin_pull(
        "T", hold_ms=15_000, expression="n > 5", fields={"expressionType": "SQL92"}
    )
    sender = exchange.connect()
    sender.send("T", n="1")
    assert not pending
    sender.send("T", b"much", n="10")
    assert bodies(pending.now) == [b"much"]


def test_held_pull_of_a_lost_client_is_forgotten(exchange: Exchange, client: Caller) -> None:
    pending = client.begin_pull("T", hold_ms=15_000)
    client.leave()
    exchange.connect().send("T")
    exchange.advance(20_000)
    assert not pending


def test_message_of_a_transaction_wakes_a_held_pull_when_it_is_committed(
    exchange: Exchange, client: Caller
) -> None:
    pending = client.begin_pull("T", hold_ms=15_000)
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    assert not pending
    producer.end(half, 8)
    assert bodies(pending.now) == [b"paid"]


# -- offsets on the way --------------------------------------------------------------------------


def committed(client: Caller) -> Command:
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "setZeroIfNotFound": "false"}
    return client.ask(Request.QUERY_CONSUMER_OFFSET, ext)


def test_pull_commits_an_offset_on_its_way_when_its_flag_says_so(client: Caller) -> None:
    client.pull("T", fields={"commitOffset": "7"})
    assert committed(client).code == 22
    client.pull("T", fields={"commitOffset": "7", "sysFlag": "5"})
    assert (committed(client).ext or {})["offset"] == "7"


def test_held_pull_commits_once_when_it_comes(exchange: Exchange, client: Caller) -> None:
    client.begin_pull("T", hold_ms=1_000, fields={"commitOffset": "7", "sysFlag": "7"})
    assert (committed(client).ext or {})["offset"] == "7"
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "9"}
    client.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.advance(2_000)
    assert (committed(client).ext or {})["offset"] == "9"


def test_offset_that_an_operator_reset_is_told_once(client: Caller) -> None:
    for _ in range(4):
        client.send("T")
    ext = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
    client.pull("T", 4, fields={"commitOffset": "4", "sysFlag": "5"})
    assert client.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, ext).code == 0
    reply = client.pull("T", 4, fields={"commitOffset": "4", "sysFlag": "5"})
    assert (reply.code, reply.remark, offsets(reply)) == (21, "OFFSET_RESET", (0, 0, 4))
    assert len(bodies(client.pull("T", 0))) == 4


def test_commit_that_comes_with_the_pull_that_is_told_a_reset_is_void(client: Caller) -> None:
    for _ in range(4):
        client.send("T")
    client.pull("T", 4, fields={"commitOffset": "4", "sysFlag": "5"})
    ext = {"topic": "T", "group": "CG", "timestamp": "0", "isForce": "true"}
    client.ask(Request.INVOKE_BROKER_TO_RESET_OFFSET, ext)
    client.pull("T", 4, fields={"commitOffset": "4", "sysFlag": "5"})
    assert (committed(client).ext or {})["offset"] == "0"


# -- durability ----------------------------------------------------------------------------------


def test_with_sync_flush_a_pull_sees_a_message_when_it_is_durable() -> None:
    exchange = Exchange(store_settings=type(SMALL)(is_sync_flush=True, log_segment_size=1 << 20))
    client = exchange.connect()
    exchange.create_topic("T")
    exchange.holds_syncs = True
    sent = exchange.connect().begin_send("T", b"safe")
    pending = client.begin_pull("T", hold_ms=15_000)
    assert not sent
    assert not pending
    exchange.sync()
    assert sent.now.code == 0
    assert bodies(pending.now) == [b"safe"]


# -- requests that came together -----------------------------------------------------------------


def test_one_pull_is_bounded_whatever_is_asked_for() -> None:
    exchange = Exchange(store_settings=StoreSettings(log_segment_size=1 << 26))
    exchange.create_topic("T")
    client = exchange.connect()
    for _ in range(5):
        assert client.send("T", bytes(3_000_000), queue_id=0).code == 0
    fields = {"maxMsgBytes": "2000000000", "maxMsgNums": "1024"}
    reply = client.begin_pull("T", fields=fields).now
    assert 3_000_000 < len(reply.body) <= PULL_SIZE_MAX
