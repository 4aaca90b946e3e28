"""A slave and its master: what is the same at the end, and what neither takes from anybody."""

from __future__ import annotations

import logging

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request, Response
from escrowmq.base.measure import Sample
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.store.store import Store
from escrowmq.testing.disk import CrashLoss
from tests.harness.exchange import COMMIT, SMALL, Exchange
from tests.harness.pair import Node, Pair, log_of, queues_of

STATUS = Request.GET_BROKER_HA_STATUS


def stores(pair: Pair) -> tuple[Store, Store]:
    return pair.master.core.broker.store, pair.slave.core.broker.store


def are_same(pair: Pair) -> bool:
    ours, theirs = stores(pair)
    return log_of(ours) == log_of(theirs) and queues_of(ours) == queues_of(theirs)


def some_traffic(pair: Pair, count: int = 30, *, size: int = 20) -> None:
    """Messages, and transactions of every kind of end."""
    caller = pair.master.connect("producer")
    caller.heartbeat(producer="p")
    for number in range(count):
        caller.send("orders", b"body %d" % number * size, queue_id=number % 3)
        half = caller.prepare("orders", b"half %d" % number, group="p")
        if number % 3:
            caller.end(half, COMMIT)
    caller.leave()


@pytest.mark.parametrize("size", [7, 1 << 20])
def test_logs_and_queues_are_the_same(size: int) -> None:
    pair = Pair()
    pair.cut_into = size
    some_traffic(pair)
    pair.introduce()
    pair.advance(100)
    assert stores(pair)[1].end_offset
    assert are_same(pair)
    some_traffic(pair)
    pair.advance(2_500)
    assert are_same(pair)


def test_all_that_the_master_has_is_copied_over_files() -> None:
    pair = Pair(
        store=msgspec.structs.replace(SMALL, log_segment_size=8192),
        slave_store=msgspec.structs.replace(SMALL, log_segment_size=8192),
    )
    some_traffic(pair)
    ours, theirs = stores(pair)
    assert len(ours.log.segments.starts) > 3
    pair.introduce()
    pair.advance(100)
    assert theirs.min_log_offset == 0
    assert are_same(pair)


def test_a_slave_goes_on_after_any_end(caplog: pytest.LogCaptureFixture) -> None:
    pair = Pair()
    pair.introduce()
    for nth, loss in enumerate([None, CrashLoss.NOTHING, CrashLoss.PREFIX, CrashLoss.ALL]):
        some_traffic(pair)
        pair.advance(1_000)
        pair.start_slave_again(loss, seed=nth)
        some_traffic(pair, 3)
        pair.advance(12_000)
        assert are_same(pair), loss
    assert not [r for r in caplog.records if "log is not this slave's" in r.message]


def test_a_cut_connection_is_made_again() -> None:
    pair = Pair()
    pair.introduce()
    some_traffic(pair, 3)
    pair.cut()
    some_traffic(pair, 3)
    pair.advance(3_000)
    assert not are_same(pair)
    pair.mend()
    pair.advance(6_000)
    assert are_same(pair)


def test_tables_are_there_within_five_seconds() -> None:
    pair = Pair()
    pair.introduce()
    pair.advance(3_000)
    pair.master.create_topic("late", queues=5)
    operator = pair.master.connect("operator")
    group = {"groupName": "readers"}
    body = msgspec.json.encode(group)
    assert operator.ask(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body).code == 0
    operator.send("late", b"x", queue_id=4)
    operator.ask(
        Request.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": "readers", "topic": "late", "queueId": "4", "commitOffset": "1"},
    )
    pair.advance(5_000)
    broker = pair.slave.core.broker
    topic = broker.topics.get("late")
    assert topic is not None
    assert topic.write_queue_nums == 5
    assert broker.groups.find("readers") is not None
    assert broker.offsets.get("readers", "late", 4) == 1
    assert b"late" in (pair.slave.disk.read("config/topics.json") or b"")
    assert b"late@readers" in (pair.slave.disk.read("config/consumerOffset.json") or b"")
    operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "late"})
    pair.advance(5_000)
    assert broker.topics.get("late") is None
    assert broker.store.topics() == pair.master.core.broker.store.topics()


def test_what_was_read_and_settled_is_not_known_before_the_log_is_there() -> None:
    """Else a slave that is made master would take for settled what it does not have."""
    settings = msgspec.structs.replace(SMALL, log_segment_size=8192, reserve_size=512)
    pair = Pair(store=settings, slave_store=msgspec.structs.replace(settings))
    pair.introduce()
    pair.advance(3_000)
    slave = pair.slave.core.broker
    some_traffic(pair)
    operator = pair.master.connect("operator")
    committed = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "commitOffset": "9"}
    operator.ask(Request.UPDATE_CONSUMER_OFFSET, committed)
    pair.slave.disk.room = pair.slave.disk.used
    some_traffic(pair, 200)
    operator.ask(Request.UPDATE_CONSUMER_OFFSET, committed | {"commitOffset": "60"})
    pair.slave.gets_over_errors = True
    pair.advance(6_000)
    assert slave.store.end_offset < pair.master.core.broker.store.end_offset
    assert slave.offsets.get("g", "orders", 0) < 60
    pair.slave.disk.room = None
    pair.advance(12_000)
    assert are_same(pair)
    assert slave.offsets.get("g", "orders", 0) == 60


def test_another_clusters_slave_gets_one_word_and_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Pair()
    some_traffic(other, 5)
    other.introduce()
    other.advance(100)
    pair = Pair()
    some_traffic(pair, 40, size=21)
    foreign = other.slave.disk
    other.slave.core.close(other.slave.now_ms)
    foreign.restart()
    pair.slave = pair.new_slave(other.slave.store_settings, foreign)
    before = log_of(stores(pair)[1])
    caplog.clear()
    pair.introduce()
    pair.advance(70_000)
    assert log_of(stores(pair)[1]) == before
    told = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    ours = log_of(stores(pair)[0])
    first = next(n for n, (a, b) in enumerate(zip(ours, before, strict=False)) if a != b)
    assert len(told) == 1, told
    assert f"differ from offset {first} on" in told[0]
    assert "move its folder away" in told[0]


def test_a_slave_with_more_than_its_master_says_so_and_keeps_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = Pair()
    some_traffic(other, 50)
    other.introduce()
    other.advance(100)
    pair = Pair()
    some_traffic(pair, 2)
    other.slave.core.close(other.slave.now_ms)
    other.slave.disk.restart()
    pair.slave = pair.new_slave(other.slave.store_settings, other.slave.disk)
    end = stores(pair)[1].end_offset
    caplog.clear()
    pair.introduce()
    pair.advance(30_000)
    assert stores(pair)[1].end_offset == end
    told = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(told) == 1, told


def test_status_of_both() -> None:
    pair = Pair()
    some_traffic(pair, 3)
    pair.introduce()
    pair.advance(100)
    end = stores(pair)[0].end_offset
    status = msgspec.json.decode(pair.master.connect().ask(STATUS).body)
    (slave,) = status["haConnectionInfo"]
    assert (status["master"], status["inSyncSlaveNums"]) == (True, 1)
    assert (slave["slaveAckOffset"], slave["diff"], slave["inSync"]) == (end, 0, True)
    status = msgspec.json.decode(pair.slave.connect().ask(STATUS).body)
    assert status["master"] is False
    assert status["haClientRuntimeInfo"]["masterAddr"] == "10.0.0.1:10912"
    assert status["haClientRuntimeInfo"]["maxOffset"] == end


def test_a_slave_keeps_what_its_master_has(caplog: pytest.LogCaptureFixture) -> None:
    settings = msgspec.structs.replace(SMALL, log_segment_size=8192, delete_when="00;23")
    pair = Pair(store=settings, slave_store=msgspec.structs.replace(settings))
    some_traffic(pair)
    pair.introduce()
    pair.advance(3_000)
    slave = stores(pair)[1]
    slave.retention.request_cleanup()
    slave.retention.clean_up(slave.last_stored_ms + 1_000 * 3_600_000)
    assert slave.min_log_offset == 0


def test_tickets_alone_open_a_port_that_wants_them() -> None:
    pair = Pair(master=ReplicaSettings(needs_ticket=True))
    some_traffic(pair, 3)
    pair.introduce()
    pair.advance(100)
    assert are_same(pair)


def test_a_broker_alone_gives_no_tickets() -> None:
    pair = Pair()
    alone = pair.promote()
    alone.replica = None
    alone.reopen()
    reply = alone.connect().ask(Request.ESCROW_FOLLOW, {"start": "-1"})
    assert reply.code == Response.SERVICE_NOT_AVAILABLE
    assert "haListenPort" in (reply.remark or "")
    status = msgspec.json.decode(alone.connect().ask(STATUS).body)
    assert status["haConnectionInfo"] == []


def test_a_slave_is_well_while_it_copies() -> None:
    pair = Pair()
    assert "name server" in pair.slave.core.write_refusal_reason()
    some_traffic(pair, 3)
    pair.introduce()
    pair.advance(100)
    assert pair.slave.core.write_refusal_reason() == ""
    pair.cut()
    assert "10.0.0.1:10912" in pair.slave.core.write_refusal_reason()
    status = msgspec.json.decode(pair.slave.connect().ask(STATUS).body)
    assert "10.0.0.1:10912" in status["escrowFault"]
    pair.mend()
    pair.advance(6_000)
    assert pair.slave.core.write_refusal_reason() == ""


def test_figures_of_both() -> None:
    pair = Pair()
    some_traffic(pair, 3)
    pair.introduce()
    pair.advance(3_000)

    def of(node: Node) -> dict[str, float]:
        families = node.core.measure(node.now_ms)
        return {
            family.name: sample.value
            for family in families
            for sample in family.samples
            if isinstance(sample, Sample)
        }

    master, slave = of(pair.master), of(pair.slave)
    assert (master["escrowmq_slaves_in_sync"], master["escrowmq_slave_behind_bytes"]) == (1, 0)
    assert (slave["escrowmq_copying"], slave["escrowmq_master_behind_bytes"]) == (1, 0)
    pair.cut()
    assert of(pair.slave)["escrowmq_copying"] == 0
    assert of(pair.master)["escrowmq_slaves_in_sync"] == 0


def test_a_slave_that_was_off_too_long_says_so_and_keeps_what_it_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    settings = msgspec.structs.replace(SMALL, log_segment_size=8192)
    pair = Pair(store=settings, slave_store=msgspec.structs.replace(settings))
    some_traffic(pair, 5)
    pair.introduce()
    pair.advance(100)
    pair.cut()
    some_traffic(pair, 60)
    master = stores(pair)[0]
    while master.min_log_offset <= stores(pair)[1].end_offset + settings.log_segment_size:
        master.log.segments.remove(master.min_log_offset)
    end = stores(pair)[1].end_offset
    pair.mend()
    caplog.clear()
    pair.advance(40_000)
    assert stores(pair)[1].end_offset == end
    told = [r.message for r in caplog.records if r.levelno >= logging.ERROR]
    assert len(told) == 1, told
    assert f"begins at {master.min_log_offset} now" in told[0]


def test_a_master_may_have_deleted_some_of_what_would_be_compared() -> None:
    settings = msgspec.structs.replace(SMALL, log_segment_size=8192)
    pair = Pair(store=settings, slave_store=msgspec.structs.replace(settings))
    some_traffic(pair, 20)
    pair.introduce()
    pair.advance(3_000)
    pair.cut()
    some_traffic(pair, 5)
    master, slave = stores(pair)
    while master.min_log_offset + settings.log_segment_size <= slave.end_offset - 1:
        master.log.segments.remove(master.min_log_offset)
    assert 0 < master.min_log_offset < slave.end_offset
    pair.mend()
    pair.advance(12_000)
    assert slave.end_offset == master.end_offset


def test_a_topic_that_is_made_again_while_tables_are_asked_for_keeps_its_messages() -> None:
    pair = Pair()
    pair.introduce()
    operator = pair.master.connect("operator")
    for nth in range(12):  # at any moment of a round
        pair.master.create_topic("again", queues=3)
        operator.send("again", b"old", queue_id=nth % 3)
        pair.advance(350 * (nth % 4))
        operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
        pair.advance(50 * nth)
        pair.master.create_topic("again", queues=3)
        operator.send("again", b"new", queue_id=(nth + 1) % 3)
        pair.advance(50 * nth)
        operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
    pair.master.create_topic("again", queues=3)
    operator.send("again", b"last", queue_id=1)
    pair.advance(6_000)
    assert are_same(pair)
    topics = pair.slave.core.broker.topics
    assert topics.get("again") == pair.master.core.broker.topics.get("again")
    operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "again"})
    pair.advance(6_000)
    assert are_same(pair)
    assert topics.get("again") is None


def test_a_delayed_message_of_a_deleted_topic_has_its_offset_at_the_slave_too() -> None:
    """As RocketMQ, the master stores it when it is due. The next message of a new topic follows it:
    a slave without it would give that another offset, and consumers would skip it there."""
    pair = Pair()
    pair.introduce()
    pair.master.create_topic("T")
    producer = pair.master.connect()
    producer.send("T", b"old")
    producer.send("T", b"late", TIMER_DELAY_MS="6000")
    pair.advance(4_000)
    assert producer.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    pair.advance(10_000)
    pair.master.create_topic("T")
    producer.send("T", b"new")
    pair.advance(5_000)
    master, slave = (node.core.broker.store for node in (pair.master, pair.slave))
    assert master.bounds("T", 0) == (0, 2)
    assert slave.bounds("T", 0) == (0, 2)
    assert queues_of(slave) == queues_of(master)


def test_queues_of_a_topic_that_is_not_known_yet_can_all_be_read() -> None:
    """The master was killed before the slave had its topics: it knows as many queues as the first
    messages had, and then others arrived."""
    pair = Pair()
    pair.introduce()
    pair.advance(1_000)
    operator = pair.master.connect("operator")
    pair.master.create_topic("new", queues=4)
    topics = pair.slave.core.broker.topics
    for queue_id in (0, 2, 1, 3):  # no time passes in which the master could be asked
        operator.send("new", b"body", queue_id=queue_id)
        pair.deliver()
        pair.deliver()
    known = topics.get("new")
    assert known is not None
    assert (known.read_queue_nums, known.write_queue_nums) == (4, 4)


def test_a_slave_that_knows_only_the_replication_port_copies_as_rocketmqs_do(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    slave = ReplicaSettings(role="SLAVE", ha_master="10.0.0.1:10912")
    settings = msgspec.structs.replace(SMALL, log_segment_size=8192)
    pair = Pair(slave=slave, store=settings, slave_store=msgspec.structs.replace(settings))
    some_traffic(pair)
    pair.advance(6_000)
    master, slave_store = stores(pair)
    begin = master.end_offset - master.end_offset % settings.log_segment_size
    assert slave_store.min_log_offset == begin > 0
    assert log_of(slave_store, begin) == log_of(master, begin)
    assert any("last file" in record.message for record in caplog.records)
    some_traffic(pair)
    pair.advance(1_000)
    assert slave_store.end_offset == master.end_offset


def test_what_a_slave_serves_can_be_changed_while_it_runs() -> None:
    pair = Pair()
    pair.master.connect().send("orders", b"body", queue_id=0)
    pair.introduce()
    pair.advance(3_000)
    caller = pair.slave.connect()
    assert caller.pull("orders").code == Response.SYSTEM_BUSY
    changed = caller.ask(Request.UPDATE_BROKER_CONFIG, {}, b"slaveReadEnable=true")
    assert changed.code == 0, changed.remark
    assert caller.bodies("orders") == [b"body"]
    fixed = caller.ask(Request.UPDATE_BROKER_CONFIG, {}, b"brokerRole=ASYNC_MASTER")
    assert fixed.code == Response.NO_PERMISSION


def test_a_slave_without_a_master_asks_name_servers_again_without_its_topics() -> None:
    settings = BrokerSettings(name="b", broker_id=1, name_servers="10.0.0.5:9876")
    slave = Exchange(settings, replica=ReplicaSettings(role="SLAVE"))
    server = slave.connect(peer=-1)
    (first,) = server.take(Request.REGISTER_BROKER)
    server.answer(first)
    slave.advance(11_000)
    again = server.take(Request.REGISTER_BROKER)
    assert len(again) == 2
    for asked in again:
        table = msgspec.json.decode(asked.body)["topicConfigSerializeWrapper"]["topicConfigTable"]
        assert table == {}
    server.answer(again[-1], ext={"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:9"})
    slave.advance(0)
    assert [(d.host, d.port) for d in slave.dials[1:]] == [("10.0.0.1", 10911)]
    slave.advance(20_000)
    (full,) = server.take(Request.REGISTER_BROKER)[-1:]
    assert msgspec.json.decode(full.body)["topicConfigSerializeWrapper"] is not None
