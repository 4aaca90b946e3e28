from __future__ import annotations

import json
import random
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.broker.requests import on_config
from escrowmq.broker.requests.on_config import CHANGES_FILE
from escrowmq.codec.changed_settings import ChangedSettings
from escrowmq.errors import DiskFull
from escrowmq.store.retention import parse_hours
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.exchange import SMALL, START_MS, Caller, Exchange


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    return Exchange()


@pytest.fixture(name="operator")
def make_operator(exchange: Exchange) -> Caller:
    return exchange.connect()


def change(operator: Caller, text: str) -> Command:
    return operator.ask(Request.UPDATE_BROKER_CONFIG, body=text.encode())


def settings_of(operator: Caller) -> dict[str, str]:
    reply = operator.ask(Request.GET_BROKER_CONFIG)
    lines = reply.body.decode().splitlines()
    assert lines == sorted(lines, key=lambda line: line.partition("=")[0])
    assert json.loads((reply.ext or {})["version"])["counter"] >= 0
    return dict(line.split("=", 1) for line in lines)


def test_settings_are_shown_under_the_names_of_the_peer(operator: Caller) -> None:
    found = settings_of(operator)
    assert found["brokerName"] == "broker-a"
    assert found["transactionTimeOut"] == "6000"
    assert found["flushDiskType"] == "ASYNC_FLUSH"
    assert found["listenPort"] == "10911"
    assert found["traceOn"] == "true"


def test_settings_are_changed_while_the_broker_runs(exchange: Exchange, operator: Caller) -> None:
    assert change(operator, "# mine\ntransactionTimeOut=100\nfileReservedTime = 5\n\n").code == 0
    assert exchange.settings.transaction_timeout_ms == 100
    assert exchange.store_settings.reserved_hours == 5
    assert settings_of(operator)["fileReservedTime"] == "5"


@pytest.mark.parametrize(
    ("text", "code", "remark"),
    [
        ("", 1, "string2Properties error"),
        ("# nothing", 1, "string2Properties error"),
        ("brokerConfigPath=/etc/passwd", 16, "Can not update config in black list."),
        ("rocketmqHome=/", 16, "Can not update config in black list."),
        ("transactionTimeOut=5\nconfigBlackList=", 16, "Can not update config in black list."),
    ],
)
def test_change_is_refused_as_the_peer_refuses_it(
    operator: Caller, text: str, code: int, remark: str
) -> None:
    reply = change(operator, text)
    assert (reply.code, reply.remark) == (code, remark)


@pytest.mark.parametrize(
    "text",
    ["brokerName=b", "storePathRootDir=/", "mappedFileSizeCommitLog=5", "namesrvAddr=evil:1",
     "aclEnable=false", "escrowAclAsRocketMQ=true", "escrowAclFolder=/",
     "escrowAdmin=everybody", "is_sync_flush=true", "memory_size=5",
     "flushDiskType=SYNC_FLUSH"],
)  # fmt: skip
def test_what_holds_from_start_to_end_is_not_changed(
    exchange: Exchange, operator: Caller, text: str
) -> None:
    reply = change(operator, f"transactionTimeOut=5\n{text}")
    assert reply.code == 16
    assert text.partition("=")[0] in (reply.remark or "")
    assert exchange.settings.transaction_timeout_ms == 6_000


def test_setting_that_nobody_knows_is_no_question_of_rights(operator: Caller) -> None:
    reply = change(operator, "transactionTimeOut=5\nnoSuchKey=1")
    assert (reply.code, reply.remark) == (
        29, "noSuchKey: unknown setting; GET_BROKER_CONFIG lists the known ones",
    )  # fmt: skip


@pytest.mark.parametrize(
    "pair",
    [
        "transactionTimeOut=soon", "transactionCheckMax=0", "traceOn=maybe", "maxMessageSize=",
        "maxMessageSize=99999999999", f"flushIntervalCommitLog={10**20}",
    ],
)  # fmt: skip
def test_bad_value_is_refused_with_29_and_nothing_is_changed(
    exchange: Exchange, operator: Caller, pair: str
) -> None:
    reply = change(operator, f"transactionTimeOut=5\n{pair}\n")
    assert reply.code in (16, 29)
    assert pair.split("=")[0] in (reply.remark or "")
    assert exchange.settings.transaction_timeout_ms == 6_000


def test_text_that_java_cannot_read_is_refused(operator: Caller) -> None:
    reply = change(operator, "transactionTimeOut=\\u12")
    assert (reply.code, "four hexadecimal digits" in (reply.remark or "")) == (1, True)


_READ: set[str] = set()
"""Settings that were looked at."""


class WatchedBrokerSettings(BrokerSettings):
    def __getattribute__(self, name: str) -> Any:
        _READ.add(name)
        return super().__getattribute__(name)


class WatchedStoreSettings(StoreSettings):
    def __getattribute__(self, name: str) -> Any:
        _READ.add(name)
        return super().__getattribute__(name)


def test_setting_that_is_read_once_is_not_said_to_hold_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Looks over the shoulder of a broker that is made: what it has read by then and does not read
    again later is not changed by a request that is answered without a remark."""
    made: set[str] = set()

    def note(core: BrokerCore, now_ms: int) -> int:
        made.update(_READ)
        return opened(core, now_ms)

    def texts(changes: ChangedSettings) -> dict[str, str]:
        before = set(_READ)
        found = shown(changes)
        _READ.clear()
        _READ.update(before)
        return found

    opened, shown = BrokerCore.open, ChangedSettings.current_texts
    monkeypatch.setattr(BrokerCore, "open", note)
    monkeypatch.setattr(ChangedSettings, "current_texts", texts)
    store = WatchedStoreSettings(**msgspec.structs.asdict(SMALL))
    _READ.clear()
    Exchange(WatchedBrokerSettings(), store)
    fields = [*msgspec.structs.fields(BrokerSettings), *msgspec.structs.fields(StoreSettings)]
    lasting = on_config.FIXED_NAMES | on_config._FROM_NEXT_START
    names = {field.name: field.encode_name for field in fields if field.encode_name not in lasting}
    assert {names[name] for name in made & names.keys()} == {"traceOn"}  # each send looks again
    assert {names[name] for name in (_READ - made) & names.keys()} == {
        # All of them are read again when they are needed.
        "autoCreateTopicEnable", "channelExpiredTimeout", "cleanResourceInterval",
        "diskSpaceWarningLevelRatio", "escrowBytesPerSecond", "escrowRequestsPerSecond",
        "flushConsumerOffsetInterval",
    }  # fmt: skip


def test_hours_of_clean_up_are_changed_while_the_broker_runs(
    exchange: Exchange, operator: Caller
) -> None:
    retention = exchange.core.broker.store.retention
    hour = retention._hour(exchange.now_ms)
    assert change(operator, f"deleteWhen={(hour + 1) % 24:02d}").code == 0
    assert retention.clean_up(exchange.now_ms) == 0
    for text in ("deleteWhen=24", "deleteWhen=4;x", "deleteWhen=-1"):
        reply = change(operator, text)
        assert (reply.code, "hours from 00 to 23" in (reply.remark or "")) == (29, True)
    assert change(operator, f"deleteWhen=99;{hour:02d};").code == 29
    assert parse_hours(f"99;{hour:02d};x") == {99, hour}


def test_spans_that_were_copied_once_follow_their_settings(
    exchange: Exchange, operator: Caller
) -> None:
    transactions = exchange.core.transactions
    change(operator, "escrowKeyRotationHours=1\nfileReservedTime=5\ntimerMaxDelaySec=60")
    half = operator.prepare("T", b"x", group="PG", wants_id=True)
    assert half.escrow_id
    assert not transactions.keyring.is_rotation_due(exchange.now_ms + 3_599_999)
    assert transactions.keyring.is_rotation_due(exchange.now_ms + 3_600_000)
    assert transactions.checker._age_max_ms() == 5 * 3_600_000
    assert operator.send("T", TIMER_DELAY_SEC="61").code == 13
    assert operator.send("T", TIMER_DELAY_SEC="59").code == 0


# -- over a restart ------------------------------------------------------------------------------


def restarted(exchange: Exchange, settings: BrokerSettings | None = None) -> Exchange:
    """The same store, opened by a process that was started with these settings."""
    exchange.core.close(exchange.now_ms)
    exchange.disk.restart()
    return Exchange(settings or BrokerSettings(), disk=exchange.disk)


def test_changes_survive_a_restart(exchange: Exchange, operator: Caller) -> None:
    text = "transactionTimeOut=100\nfileReservedTime=5\ntraceOn=False\nbrokerPermission=4"
    assert change(operator, text).code == 0
    again = restarted(exchange)
    assert again.settings.transaction_timeout_ms == 100
    assert again.store_settings.reserved_hours == 5
    assert not again.settings.is_traced
    assert again.settings.permission == 4
    third = restarted(again)
    assert settings_of(third.connect())["transactionTimeOut"] == "100"


def test_what_is_sized_at_the_start_has_the_changed_size(
    exchange: Exchange, operator: Caller
) -> None:
    reply = change(operator, "maxPopPollingSize=1\ntransactionTimeOut=100")
    assert reply.code == 0
    assert reply.remark == "maxPopPollingSize: saved; it takes effect at the next start"
    again = restarted(exchange)
    fields = {
        "consumerGroup": "G", "topic": "T", "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "1000", "pollTime": "5000", "initMode": "0",
    }  # fmt: skip
    again.create_topic("T")
    polls = [again.connect().begin(Request.POP_MESSAGE, fields) for _ in range(2)]
    assert not polls[0]
    assert polls[1].now.code == 209


def test_change_taken_back_leaves_nothing(exchange: Exchange, operator: Caller) -> None:
    assert change(operator, "transactionTimeOut=100").code == 0
    assert change(operator, "transactionTimeOut=6000").code == 0
    assert json.loads(exchange.disk.read(CHANGES_FILE) or b"") == {}
    edited = BrokerSettings(transaction_timeout_ms=7)
    assert restarted(exchange, edited).settings.transaction_timeout_ms == 7


def test_file_that_was_edited_after_a_change_wins(exchange: Exchange, operator: Caller) -> None:
    assert change(operator, "transactionTimeOut=100\ntransactionCheckMax=3").code == 0
    again = restarted(exchange, BrokerSettings(transaction_timeout_ms=7_000))
    assert again.settings.transaction_timeout_ms == 7_000
    assert again.settings.transaction_checks_max == 3


def test_change_is_saved_before_it_is_answered(exchange: Exchange, operator: Caller) -> None:
    assert change(operator, "transactionTimeOut=100").code == 0
    exchange.disk.crash(random.Random(0), CrashLoss.ALL)
    again = Exchange(disk=exchange.disk)
    assert again.settings.transaction_timeout_ms == 100


class FullDisk(SimDisk):
    """No room for changed settings."""

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        if path == CHANGES_FILE:
            raise DiskFull(f"{path}: no room; make some")
        super().replace(path, data, is_private=is_private)


def test_change_that_cannot_be_saved_is_refused_and_not_made() -> None:
    exchange = Exchange(disk=FullDisk())
    reply = change(exchange.connect(), "transactionTimeOut=100")
    assert (reply.code, reply.remark) == (1, f"{CHANGES_FILE}: no room; make some")
    assert exchange.settings.transaction_timeout_ms == 6_000


@pytest.mark.parametrize(
    "data",
    [
        b"{broken",
        b"[]",
        b'{"transactionTimeOut":{"insteadOf":"6000","value":"soon"}}',
        b'{"brokerName":{"insteadOf":"broker-a","value":"b"}}',
        b'{"unknown":{"insteadOf":"1","value":"2"}}',
    ],
)
def test_saved_changes_that_cannot_be_are_passed_over(exchange: Exchange, data: bytes) -> None:
    exchange.core.close(exchange.now_ms)
    exchange.disk.replace(CHANGES_FILE, data)
    exchange.disk.restart()
    again = Exchange(BrokerSettings(), disk=exchange.disk)
    assert again.settings == BrokerSettings()
    assert change(again.connect(), "transactionTimeOut=100").code == 0


def figures(operator: Caller) -> dict[str, str]:
    found: dict[str, str] = json.loads(operator.ask(Request.GET_BROKER_RUNTIME_INFO).body)["table"]
    return found


def test_figures_are_those_that_operators_read(exchange: Exchange, operator: Caller) -> None:
    for _ in range(5):
        operator.send("T")
    operator.pull("T")
    exchange.advance(3_661_000)
    found = figures(operator)
    assert found["brokerVersionDesc"] == "V5_3_3"
    assert found["bootTimestamp"] == str(START_MS)
    assert found["runtime"] == "[ 0 days, 1 hours, 1 minutes, 1 seconds ]"
    assert found["msgPutTotalTodayNow"] == "5"
    assert found["msgGetTotalTodayNow"] == "5"
    assert found["earliestMessageTimeStamp"] == str(START_MS)
    assert len(found["putTps"].split(" ")) == 3
    assert all(isinstance(value, str) for value in found.values())
    assert list(found) == sorted(found)
    assert found["commitLogDirCapacity"] == "Total : 100 B, Free : 90 B."


@pytest.mark.parametrize(
    ("room", "readable"), [(1536, "1.5 KiB"), (8 << 20, "8.0 MiB"), (2048 << 60, "2048.0 EiB")]
)
def test_room_on_the_disk_is_readable(
    exchange: Exchange, operator: Caller, room: int, readable: str
) -> None:
    exchange.disk.room = room
    assert figures(operator)["commitLogDirCapacity"].startswith(f"Total : {readable}, Free : ")


def test_put_that_failed_is_counted(exchange: Exchange, operator: Caller) -> None:
    exchange.store_settings.body_size_max = 4_194_304
    operator.send("T", bytes(4_194_305))
    assert figures(operator)["putMessageFailedTimes"] == "1"


def test_master_without_slaves_is_shown(operator: Caller) -> None:
    operator.send("T")
    body = json.loads(operator.ask(Request.GET_BROKER_HA_STATUS).body)
    assert body["master"] is True
    assert body["haConnectionInfo"] == []
    assert body["masterCommitLogMaxOffset"] > 0


def test_queues_of_topics_that_are_gone_are_cleaned(exchange: Exchange, operator: Caller) -> None:
    operator.send("T")
    operator.send("U")
    exchange.core.broker.topics.delete("T", exchange.now_ms)
    for code in (Request.CLEAN_EXPIRED_CONSUMEQUEUE, Request.CLEAN_UNUSED_TOPIC):
        assert operator.ask(code).code == 0
    assert "T" not in exchange.core.broker.store.topics()
    assert operator.bodies("U") == [b"body"]


def test_requests_about_what_this_broker_does_not_have_are_answered(operator: Caller) -> None:
    assert json.loads(operator.ask(Request.GET_COLD_DATA_FLOW_CTR_INFO).body)["globalAcc"] == 0
    for code in (2001, 2002, 2004):
        assert operator.ask(code).code == 0
    reply = operator.ask(Request.CHECK_ROCKSDB_CQ_WRITE_PROGRESS)
    assert json.loads(reply.body) == {"checkStatus": 2}


def test_old_files_are_deleted_when_asked(exchange: Exchange, operator: Caller) -> None:
    exchange.store_settings.reserved_hours = 1
    for _ in range(40):
        operator.send("T", bytes(60_000))
    exchange.advance(2 * 3_600_000)
    before = exchange.core.broker.store.min_log_offset
    assert operator.ask(Request.DELETE_EXPIRED_COMMITLOG).code == 0
    exchange.advance(20_000)
    assert exchange.core.broker.store.min_log_offset > before
    assert operator.send("T").code == 0
