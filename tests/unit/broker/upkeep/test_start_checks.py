"""Taking over a data folder: what a start serves, mends, refuses, and what is said in each case."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.upkeep.start_checks import table_parsers
from escrowmq.errors import StorageError
from escrowmq.store.check import CheckResult, StoreCheck
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.exchange import SMALL, Exchange

Change = Callable[[SimDisk], None]

TOPICS = "config/topics.json"
GROUPS = "config/subscriptionGroup.json"
OFFSETS = "config/consumerOffset.json"
BODIES = [b"0", b"1", b"2"]
AFTER_A_CLEAN_STOP = ("queues lack units", "queues were rebuilt")


def kept(*, is_clean: bool) -> SimDisk:
    """The folder of a broker that had three messages, a group behind two of them, and a pending
    transaction."""
    exchange = Exchange()
    exchange.create_topic("T", order="true")
    client = exchange.connect()
    for body in BODIES:
        assert client.send("T", body).code == 0
    client.heartbeat(producers=["PG"], consumers=["G"])
    client.prepare("T", b"half")
    commit(exchange, "T", 1)
    exchange.advance(6_000)
    commit(exchange, "T", 2)
    exchange.advance(6_000)
    if is_clean:
        exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    return exchange.disk


def commit(exchange: Exchange, topic: str, offset: int) -> None:
    ext = {
        "consumerGroup": "G", "topic": topic, "queueId": "0", "commitOffset": str(offset),
    }  # fmt: skip
    exchange.connect().tell(Request.UPDATE_CONSUMER_OFFSET, ext)


def offset(exchange: Exchange) -> int:
    return exchange.core.broker.offsets.get("G", "T", 0)


def pending(exchange: Exchange) -> int:
    return len(exchange.core.transactions.engine.halves.pending)


def checked(disk: SimDisk) -> CheckResult:
    settings = StoreSettings(
        index_slots_count=SMALL.index_slots_count, index_entries_max=SMALL.index_entries_max
    )
    return StoreCheck(disk, settings, readers=table_parsers()).run(0x7FFF_FFFF_FFFF)


def without(*prefixes: str) -> Change:
    def change(disk: SimDisk) -> None:
        for files in (disk.files, disk.small):
            for path in [path for path in files if path.startswith(prefixes)]:
                del files[path]

    return change


def holding(path: str, data: bytes, *, former: bool = True) -> Change:
    def change(disk: SimDisk) -> None:
        disk.small[path] = data
        if not former:
            disk.small.pop(f"{path}.bak", None)

    return change


def bare(path: str) -> Change:
    return without(path)


def only_former(path: str) -> Change:
    def change(disk: SimDisk) -> None:
        del disk.small[path]

    return change


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean", "killed"])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda disk: None, ""),
        (without("consumequeue/"), "queues lack units"),
        (without("consumequeue/", "index/", "queues.json"), "queues were rebuilt"),
        # As RocketMQ leaves it: nothing but a group's offset tells that there was this queue.
        (without("consumequeue/T/", "queues."), "queues that groups have read are missing: T/0"),
        (without("index/", "queues."), "the index is rebuilt: it has no file"),
        (only_former(TOPICS), "config/topics.json is not there: read from config/topics.json.bak"),
        (holding(TOPICS, b""), "config/topics.json is empty: read from"),
        (holding(TOPICS, b'{"topicConfigTable":{"T'), "config/topics.json cannot be read"),
        (holding(TOPICS, b'{"topicConfigTable":{"T":7}}'), "config/topics.json cannot be read"),
        (bare(TOPICS), "topics, which are recreated from their queues (T)"),
        (holding(GROUPS, bytes(100)), "config/subscriptionGroup.json is empty: read from"),
        (bare(GROUPS), ""),
    ],
)
def test_what_a_start_serves_whole(
    change: Change, said: str, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = kept(is_clean=is_clean)
    caplog.clear()
    change(disk)
    exchange = Exchange(disk=disk)
    assert exchange.connect().bodies("T") == BODIES
    assert offset(exchange) == 2
    assert pending(exchange) == 1
    assert ("closed properly" in caplog.text) == is_clean
    assert ("not closed, and is recovered" in caplog.text) == (not is_clean)
    # Behind a kill the newest units of queues are missing anyway; it is said how much was read.
    assert said in caplog.text or (not is_clean and said in AFTER_A_CLEAN_STOP)


@pytest.mark.parametrize("queue_id", [0, 1])
def test_retry_topic_that_was_not_saved_is_made_anew_whichever_queue_has_messages(
    queue_id: int,
) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    message = Message(topic="%RETRY%G", body=b"again", queue_id=queue_id)
    exchange.core.broker.store.put(message, exchange.now_ms)
    exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    exchange = Exchange(disk=exchange.disk)
    topic = exchange.core.broker.topics.get("%RETRY%G")
    assert topic is not None
    assert topic.read_queue_nums == queue_id + 1


@pytest.mark.parametrize("damage", [b"", bytes(9), b'{"offsetTable":{"T@G":{0:'])
def test_offsets_of_a_torn_table_are_those_of_the_former_one_and_this_is_said(
    damage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    disk = kept(is_clean=True)
    former = disk.small[f"{OFFSETS}.bak"]
    disk.small[OFFSETS] = damage
    assert not checked(disk).is_sound
    exchange = Exchange(disk=disk)
    assert offset(exchange) in (1, 2)
    assert former != b""
    assert "config/consumerOffset.json" in caplog.text
    assert "read from config/consumerOffset.json.bak, which may be a little older" in caplog.text


@pytest.mark.parametrize("path", [TOPICS, GROUPS, OFFSETS, "config/delayOffset.json"])
@pytest.mark.parametrize("damage", [b"", bytes(9), b"{{{", b'{"offsetTable":{"a":1}'])
def test_damaged_table_without_a_former_one_is_refused_with_what_to_do(
    path: str, damage: bytes
) -> None:
    disk = kept(is_clean=True)
    holding(path, damage, former=False)(disk)
    assert not checked(disk).is_sound
    with pytest.raises(StorageError, match=r"restore one from a copy, or remove both"):
        Exchange(disk=disk)


def rocksdb(disk: SimDisk) -> None:
    without("consumequeue/", TOPICS)(disk)
    disk.small["consumequeue/CURRENT"] = b"MANIFEST-000005\n"


def database(folder: str, *files: str) -> Change:
    """A database of RocksDB's, with files that have data."""

    def make(disk: SimDisk) -> None:
        disk.small[f"{folder}/CURRENT"] = b"MANIFEST-000005\n"
        disk.small[f"{folder}/000004.log"] = b""
        disk.small.update({f"{folder}/{name}": b"x" for name in files})

    return make


def tables_of_accounts_and_topics(disk: SimDisk) -> None:
    for name in ("users", "topics", "consumerOffsets"):
        database(f"config/{name}")(disk)


def halves_of_rocksdb(disk: SimDisk) -> None:
    without("queues.json")(disk)
    disk.small["consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC/0/00000000000000000000"] = bytes(
        5_120
    )


def dledger(disk: SimDisk) -> None:
    disk.small["dledger-n0/data/00000000000000000000"] = b"x"


def batches(disk: SimDisk) -> None:
    disk.small["batchconsumequeue/B/0/00000000000000000000"] = bytes(46)


def offsets_alone(disk: SimDisk) -> None:
    without("commitlog/", "consumequeue/", "index/", "checkpoint", "queues.json")(disk)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("commitlog/"), "commitlog has no file, but queues.json knows"),
        (without("commitlog/", "queues.json"), "commitlog has no file, but the checkpoint knows"),
        (
            without("commitlog/", "queues.json", "checkpoint"),
            "commitlog has no file, but consumequeue has queues",
        ),
        (rocksdb, "^consumequeue is RocksDB's: .*Move consumequeue away"),
        (
            database("consumequeue_rocksdb"),
            "^consumequeue_rocksdb is RocksDB's: .*Move consumequeue_rocksdb away",
        ),
        (
            tables_of_accounts_and_topics,
            "^config/consumerOffsets and config/topics: RocksDB's.*rocksDBConfigToJson.* away c",
        ),
        (
            database("config/rdb"),
            r"config/rdb: .* \(configManagerVersion=v2\).*another data folder",
        ),
        (
            database("rocksdbstore", "000009.sst"),
            "^rocksdbstore is RocksDB's, and has data: .*timerRocksDBEnable.*transRocksDBEnable",
        ),
        (database("rocksdbstore", "000004.log"), "^rocksdbstore is RocksDB's, and has data"),
        (
            halves_of_rocksdb,
            "^consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC has halves of transRocksDBEnable",
        ),
        (
            database("kvStore", "000009.sst"),
            "^kvStore is RocksDB's, and has data: .*`mqadmin exportPopRecord`",
        ),
        (dledger, r"dledger-n0 is a log of DLedger \(enableDLegerCommitLog\)"),
        (batches, "^batchconsumequeue has queues of B, topics with queue.type=BatchCQ"),
        (offsets_alone, "has offsets of 1 groups .* but the log is empty"),
    ],
)
def test_what_is_no_whole_store_of_this_kind_is_refused_and_left_as_it_was(
    change: Change, said: str
) -> None:
    disk = kept(is_clean=True)
    change(disk)
    before = {path: data for path, data in disk.small.items() if path.startswith("config/")}
    with pytest.raises(StorageError, match=said):
        Exchange(disk=disk)
    assert before == {p: data for p, data in disk.small.items() if p.startswith("config/")}
    with pytest.raises(StorageError):
        checked(disk)


@pytest.mark.parametrize(
    ("folder", "files"),
    [
        ("rocksdbstore", ()),
        ("kvStore", ()),
        ("config/users", ("000009.sst",)),
        ("config/acls", ("000009.sst",)),
    ],
)
def test_a_database_without_data_or_of_accounts_hides_no_message(
    folder: str, files: tuple[str, ...]
) -> None:
    """RocketMQ 5.5 makes the first one at each start, whether it uses it or not."""
    disk = kept(is_clean=True)
    database(folder, *files)(disk)
    assert offset(Exchange(disk=disk)) > 0


def test_a_store_that_was_taken_over_is_not_refused_for_what_it_had_before() -> None:
    disk = kept(is_clean=True)
    disk.small["consumequeue/RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC/0/00000000000000000000"] = bytes(
        5_120
    )
    assert offset(Exchange(disk=disk)) > 0


def test_progress_of_transactions_behind_the_queues_end_hides_no_pending_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = kept(is_clean=True)
    exchange = Exchange(disk=disk)
    offsets = exchange.core.broker.offsets
    offsets.commit("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 9, 0)
    newer = offsets.content_to_save(log_end=0)
    exchange.core.close(exchange.now_ms)
    disk.restart()
    disk.small[OFFSETS] = newer
    assert "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS queue 0 is at 9" in str(checked(disk))
    assert pending(Exchange(disk=disk)) == 1
    assert "is at 9, the queue ends at 1: all its halves are examined again" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False])
def test_offset_behind_its_queues_end_is_set_back_and_this_is_said(
    is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = kept(is_clean=is_clean)
    disk.small[OFFSETS] = b'{"offsetTable":{"T@G":{"0":7}}}'
    assert offset(Exchange(disk=disk)) == 3
    assert "offset of G in T/0: 7 set to 3" in caplog.text


def test_offsets_that_are_not_there_are_called_lost_where_groups_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = kept(is_clean=True)
    without(OFFSETS)(disk)
    assert offset(Exchange(disk=disk)) == -1
    assert "config/consumerOffset.json is missing or empty" in caplog.text
    assert "their consumers begin like new ones" in caplog.text


def test_a_new_folder_is_opened_without_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange()
    exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    Exchange(disk=exchange.disk)
    assert caplog.text == ""


def test_a_whole_store_is_sound_and_one_without_index_or_topics_is_not() -> None:
    disk = kept(is_clean=True)
    assert checked(disk).findings == []
    for missing in ("index/", TOPICS):
        changed = disk.fork()
        without(missing)(changed)
        assert not checked(changed).is_sound, missing


def test_tables_that_count_for_nothing_when_damaged_do_not_stop_a_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = kept(is_clean=True)
    disk.small["config/consumerOrderInfo.json"] = b"{{{"
    disk.small["config/messageRequestMode.json"] = b'{"messageRequestModeMap":7}'
    Exchange(disk=disk)
    assert caplog.text.count("it is ignored") == 2


def test_offsets_that_a_loss_of_power_sets_back_are_saved_at_once() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    exchange.advance(60_000)
    caller = exchange.connect()
    for number in range(10):
        assert caller.send("T", b"lost %d" % number).code == 0
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "10"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.disk.small[OFFSETS] = exchange.core.broker.offsets.content_to_save(log_end=0)
    exchange.crash(CrashLoss.ALL)
    store = exchange.core.broker.store
    end = store.bounds("T", 0)[1]
    assert end < 10
    caller = exchange.connect()
    for number in range(10):
        caller.send("T", b"new %d" % number)
    exchange.crash(CrashLoss.NOTHING)  # before offsets are saved by the clock
    assert exchange.core.broker.offsets.get("CG", "T", 0) == end


@pytest.mark.parametrize("loss", [CrashLoss.NOTHING, CrashLoss.ALL])
def test_a_new_topic_is_not_read_from_an_offset_of_the_deleted_one(loss: CrashLoss) -> None:
    """The broker ends before it saves its offsets the next time."""
    exchange = Exchange()
    exchange.create_topic("T", 1)
    exchange.create_topic("other", 1)
    caller = exchange.connect()
    for topic in ("T", "other"):
        for _ in range(10):
            assert caller.send(topic, b"old").code == 0
        ext = {"consumerGroup": "CG", "topic": topic, "queueId": "0", "commitOffset": "2"}
        caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.advance(20_000)
    assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    exchange.create_topic("T", 1)
    for _ in range(3):
        assert caller.send("T", b"new").code == 0
    exchange.crash(loss)
    offsets = exchange.core.broker.offsets
    assert offsets.get("CG", "T", 0) == -1
    assert offsets.get("CG", "other", 0) == 2
    exchange.crash(CrashLoss.NOTHING)
    assert exchange.core.broker.offsets.get("CG", "T", 0) == -1


def test_what_was_read_of_a_new_topic_stays_over_a_start() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    assert caller.send("T", b"old").code == 0
    assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    exchange.create_topic("T", 1)
    for _ in range(3):
        assert caller.send("T", b"new").code == 0
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "2"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.advance(20_000)
    exchange.crash(CrashLoss.NOTHING)
    assert exchange.core.broker.offsets.get("CG", "T", 0) == 2


@pytest.mark.parametrize("is_deleted_before", [True, False])
def test_an_offset_is_dropped_though_the_log_that_it_was_saved_with_is_lost(
    is_deleted_before: bool,
) -> None:
    """The log ended further on when the offsets were saved than where the topic was deleted, or
    than it has been since."""
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    assert caller.send("T", b"kept").code == 0
    exchange.advance(20_000)
    for _ in range(9):
        assert caller.send("T", b"lost").code == 0
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    broker = exchange.core.broker
    saved = broker.offsets.content_to_save(log_end=broker.store.end_offset)
    if is_deleted_before:
        assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    exchange.disk.small[OFFSETS] = saved
    exchange.crash(CrashLoss.ALL)
    if not is_deleted_before:
        assert exchange.core.broker.offsets.get("CG", "T", 0) == 1
        caller = exchange.connect()
        assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
        exchange.create_topic("T", 1)
        assert caller.send("T", b"new").code == 0
        exchange.crash(CrashLoss.NOTHING)
    assert exchange.core.broker.offsets.get("CG", "T", 0) == -1


def test_offsets_of_rocketmqs_file_stay() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    for _ in range(2):
        assert caller.send("T", b"old").code == 0
    assert caller.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 0
    exchange.create_topic("T", 1)
    for _ in range(2):
        assert caller.send("T", b"new").code == 0
    exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    exchange.disk.small[OFFSETS] = b'{"offsetTable":{"T@CG":{0:1}}}'
    assert Exchange(disk=exchange.disk).core.broker.offsets.get("CG", "T", 0) == 1
