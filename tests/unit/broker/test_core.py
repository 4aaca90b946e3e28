from __future__ import annotations

import errno
import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.upkeep.start_checks import TOPICS_FILE
from escrowmq.codec.command import encode_command, encode_request
from escrowmq.errors import DiskFull
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.exchange import SMALL, Exchange, Pending

SYNCED = msgspec.structs.replace(SMALL, is_sync_flush=True)


@pytest.fixture(name="synced")
def make_synced() -> Exchange:
    exchange = Exchange(store_settings=SYNCED)
    exchange.create_topic("T")
    exchange.holds_syncs = True
    return exchange


def test_a_part_that_fails_hides_no_lost_connection_and_no_leap_of_the_clock_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange = Exchange()
    exchange.gets_over_errors = True
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    first, *others = exchange.core._parts

    def fails(*_: object) -> None:
        raise ValueError("no such peer")

    seen: list[str] = []
    for name in ("disconnected", "clock_leapt"):
        monkeypatch.setattr(first, name, fails)
        for part in others:
            monkeypatch.setattr(part, name, lambda *_, name=name: seen.append(name))
    exchange.core.clock_leapt(1_000)
    caller.leave()
    assert seen == ["clock_leapt"] * len(others) + ["disconnected"] * len(others)
    failures = exchange.core.rounds.failures
    assert (failures["a leap of the clock"], failures["a lost connection"]) == (1, 1)


# -- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("code", [9999, 0, -5])
def test_unknown_request_is_answered_with_3(code: int, is_binary: bool) -> None:
    caller = Exchange().connect()
    caller.is_binary = is_binary
    reply = caller.ask(code)
    assert (reply.code, reply.remark) == (3, f" request type {code} not supported")
    assert reply.is_binary == is_binary


def test_unknown_one_way_request_is_not_answered() -> None:
    Exchange().connect().tell(9999)


def test_reply_that_nobody_waits_for_is_dropped() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    exchange.feed(caller, encode_command(Command(code=0, opaque=77, flag=1)))
    assert caller.send("T").code == 0


def test_requests_of_one_write_are_answered_in_one_write_and_in_order() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    frames = [encode_request(Request.GET_BROKER_HA_STATUS, n) for n in range(3)]
    exchange.core.receive(caller.id, b"".join(frames), exchange.now_ms)
    effects: list[Any] = exchange.core.take_effects()
    assert [type(effect).__name__ for effect in effects] == ["Send"]
    assert [json.loads(c[8 : 8 + c[7]])["opaque"] for c in effects[0].chunks] == [0, 1, 2]


def test_peer_that_breaks_the_protocol_is_answered_what_it_asked_before_and_closed() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    pending = caller._asked[1] = Pending(1)
    exchange.feed(caller, encode_request(Request.GET_BROKER_HA_STATUS, 1) + b"\xff" * 8)
    assert pending.now.code == 0
    assert caller.closed is not None
    assert "frame of -1 bytes" in caller.closed


def test_bytes_of_a_peer_that_is_gone_are_nothing() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.leave()
    exchange.core.receive(caller.id, encode_request(34, 1), exchange.now_ms)
    assert exchange.core.take_effects() == []


# -- SYNC_FLUSH ----------------------------------------------------------------------------------


def test_send_is_answered_when_its_record_is_durable(synced: Exchange) -> None:
    caller = synced.connect()
    first = caller.begin_send("T", b"a")
    second = caller.begin_send("T", b"b")
    assert not first
    assert len(synced.syncs) == 1
    synced.sync()
    assert first.now.code == 0
    assert not second  # it came after the sync had begun
    synced.sync()
    assert second.now.code == 0


def test_one_sync_answers_all_that_came_before_it(synced: Exchange) -> None:
    callers = [synced.connect() for _ in range(5)]
    first = callers[0].begin_send("T")
    others = [caller.begin_send("T") for caller in callers]
    synced.sync()
    assert first
    synced.sync()
    assert all(others)
    assert not synced.syncs


def test_message_that_does_not_want_to_wait_is_answered_at_once(synced: Exchange) -> None:
    assert synced.connect().begin_send("T", WAIT="false")


def test_wait_for_the_disk_ends_with_code_10_and_no_second_answer(synced: Exchange) -> None:
    caller = synced.connect()
    pending = caller.begin_send("T", b"slow")
    synced.advance(4_999)
    assert not pending
    synced.advance(1)
    assert pending.now.code == 10
    assert (pending.now.ext or {})["queueOffset"] == "0"
    synced.sync()
    assert caller.bodies("T") == [b"slow"]


def test_one_way_send_is_never_answered_whatever_the_disk_does(synced: Exchange) -> None:
    caller = synced.connect()
    slow = caller.begin_send("T", is_one_way=True)
    synced.advance(10_000)
    synced.sync()
    failed = caller.begin_send("T", is_one_way=True)
    synced.fail_sync()
    assert not slow
    assert not failed


def test_sender_that_left_is_not_answered(synced: Exchange) -> None:
    caller = synced.connect()
    pending = caller.begin_send("T")
    caller.leave()
    synced.sync()
    assert not pending


def test_failed_sync_is_never_a_success_and_the_broker_is_read_only_until_the_disk_is_sound(
    synced: Exchange,
) -> None:
    caller = synced.connect()
    kept = caller.begin_send("T", b"kept")
    synced.sync()
    lost = caller.begin_send("T", b"lost")
    synced.fail_sync("Input/output error")
    assert kept.now.code == 0
    assert lost.now.code == 14
    assert lost.now.remark == "not stored durably: Input/output error"
    later = caller.begin_send("T", b"later").now
    assert later.code == 14
    assert "service not available now." in (later.remark or "")
    synced.advance(60_000)
    assert caller.begin_send("T", b"later").now.code == 14
    assert caller.bodies("T") == [b"kept"]
    assert synced.core.write_refusal_reason()
    synced.fail_sync("Input/output error")
    synced.advance(60_000)
    assert caller.begin_send("T", b"later").now.code == 14
    synced.sync()
    assert not synced.core.write_refusal_reason()
    after = caller.begin_send("T", b"after")
    while synced.syncs:
        synced.sync()
    assert after.now.code == 0
    assert caller.bodies("T") == [b"kept", b"lost", b"after"]


def test_restart_after_a_failed_sync_reads_from_disk_and_takes_messages(synced: Exchange) -> None:
    caller = synced.connect()
    caller.begin_send("T", b"kept")
    synced.sync()
    caller.begin_send("T", b"lost")
    synced.fail_sync()
    synced.crash(CrashLoss.ALL)
    synced.holds_syncs = False
    caller = synced.connect()
    assert caller.bodies("T") == [b"kept"]
    assert caller.send("T", b"new").code == 0


@pytest.mark.parametrize("loss", list(CrashLoss))
@pytest.mark.parametrize("seed", range(5))
def test_acknowledged_messages_survive_any_crash(loss: CrashLoss, seed: int) -> None:
    exchange = Exchange(store_settings=SYNCED)
    exchange.create_topic("T")
    caller = exchange.connect()
    for number in range(10):
        assert caller.send("T", b"%d" % number).code == 0
    exchange.holds_syncs = True
    caller.begin_send("T", b"unanswered")
    exchange.holds_syncs = False
    exchange.crash(loss, seed=seed)
    found = exchange.connect().bodies("T")
    assert found[:10] == [b"%d" % number for number in range(10)]
    assert found[10:] in ([], [b"unanswered"])


# -- a full disk ---------------------------------------------------------------------------------


def test_disk_nearly_full_refuses_sends_with_14_and_serves_pulls() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("T", b"before")
    exchange.disk.used_percent = 95
    exchange.advance(10_100)
    reply = caller.send("T", b"refused")
    assert reply.code == 14
    assert "the broker's disk is full" in (reply.remark or "")
    assert caller.bodies("T") == [b"before"]
    exchange.disk.used_percent = 20
    exchange.advance(10_100)
    assert caller.send("T", b"after").code == 0
    assert caller.bodies("T") == [b"before", b"after"]


def test_write_that_finds_no_room_is_refused_and_taken_when_there_is_room_again() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("T", b"before")
    exchange.disk.room = exchange.disk.used
    codes = {caller.send("T", bytes(5_000)).code for _ in range(300)}
    assert codes <= {0, 14}
    assert 14 in codes
    exchange.disk.room = None
    exchange.advance(10_100)
    assert caller.send("T", b"after").code == 0


# -- saving --------------------------------------------------------------------------------------


def test_everything_is_there_after_a_proper_stop() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("T", b"a")
    half = caller.prepare("T", b"b")
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.reopen()
    caller = exchange.connect()
    assert caller.end(half, 8).code == 0
    assert caller.bodies("T") == [b"a", b"b"]
    assert (caller.ask(Request.QUERY_CONSUMER_OFFSET, ext).ext or {})["offset"] == "1"


def test_offsets_are_saved_every_five_seconds() -> None:
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("T")
    ext = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "1"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, ext)
    exchange.advance(15_000)
    exchange.crash()
    assert (exchange.connect().ask(Request.QUERY_CONSUMER_OFFSET, ext).ext or {})["offset"] == "1"


def test_idle_broker_asks_to_be_woken_seldom() -> None:
    exchange = Exchange()
    exchange.connect().send("T")
    exchange.advance(60_000)
    before = exchange.now_ms
    wakes = 0
    while exchange.now_ms < before + 60_000:
        exchange.advance(max(1, exchange.core.wake_at_ms() - exchange.now_ms))
        wakes += 1
    assert wakes < 100


_UNSAVED = (
    "config/topics.json: no room; make some; the change is in force, and saving it is retried"
)


class SmallDisk(SimDisk):
    """Has no room for tables while it is told so."""

    has_room = True
    refused = "config/topics.json"

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        if not self.has_room and path == self.refused:
            raise DiskFull(f"{path}: no room; make some")
        super().replace(path, data, is_private=is_private)


def test_tables_that_found_no_room_are_saved_when_there_is_some_and_nobody_else_is_cut() -> None:
    disk = SmallDisk()
    exchange = Exchange(disk=disk)
    exchange.create_topic("before")
    sender, caller = exchange.connect(), exchange.connect()
    disk.has_room = False
    refused = sender.send("made-by-a-send")
    assert (refused.code, refused.remark) == (Response.SYSTEM_ERROR, _UNSAVED)
    assert caller.send("before").code == 0
    exchange.advance(1_500)
    assert caller.send("before").code == 0
    disk.has_room = True
    exchange.advance(1_500)
    assert caller.send("before").code == 0
    assert b"made-by-a-send" in disk.small["config/topics.json"]


def test_what_else_a_read_holds_is_answered_though_a_table_finds_no_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SmallDisk()
    exchange = Exchange(disk=disk)
    exchange.create_topic("T")
    disk.has_room = False
    caller, frames = exchange.connect(), list[bytes]()
    with monkeypatch.context() as patch:
        patch.setattr(exchange, "feed", lambda _, data: frames.append(data))
        before = caller.begin(Request.GET_ALL_TOPIC_CONFIG)
        deletion = caller.begin(Request.DELETE_TOPIC_IN_BROKER, {"topic": "T"})
        behind = caller.begin(Request.GET_ALL_TOPIC_CONFIG)
    exchange.feed(caller, b"".join(frames))
    codes = before.now.code, deletion.now.code, behind.now.code
    assert codes == (0, Response.SYSTEM_ERROR, 0)


def test_a_pull_that_waits_is_told_nothing_of_a_save_nor_is_who_asks_behind_it() -> None:
    disk = SmallDisk()
    exchange = Exchange(disk=disk)
    exchange.create_topic("T")
    caller = exchange.connect()
    disk.refused = "config/subscriptionGroup.json"
    disk.has_room = False
    frames = list[bytes]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "feed", lambda _, data: frames.append(data))
        held = caller.begin_pull("T", group="newcome", hold_ms=15_000)
        behind = caller.begin(Request.GET_ALL_TOPIC_CONFIG)
    exchange.feed(caller, b"".join(frames))
    assert (held.reply, behind.now.code) == (None, 0)
    assert caller.send("T").code == 0
    assert held.now.code == 0


@pytest.mark.parametrize("code", [Request.PULL_MESSAGE, Request.UPDATE_CONSUMER_OFFSET])
def test_a_group_that_a_read_has_made_is_saved_with_its_input(code: int) -> None:
    """These leave nothing else for the end of an input."""
    exchange = Exchange()
    exchange.create_topic("T")
    ext = {
        "consumerGroup": "newcome", "topic": "T", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "1", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subVersion": "0", "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    exchange.connect().ask(code, ext)
    assert b"newcome" in exchange.disk.small["config/subscriptionGroup.json"]


def test_no_change_of_a_table_is_answered_while_it_cannot_be_kept() -> None:
    disk = SmallDisk()
    exchange = Exchange(disk=disk)
    exchange.create_topic("before")
    disk.has_room = False
    for topic in ("first", "second", "second"):
        with pytest.raises(AssertionError, match="no room"):
            exchange.create_topic(topic)
    for _ in range(2):  # the second time there is nothing left to delete
        reply = exchange.connect().ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "before"})
        assert (reply.code, reply.remark) == (Response.SYSTEM_ERROR, _UNSAVED)
    assert exchange.connect().send("second").code == 0
    disk.has_room = True
    reply = exchange.connect().ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "before"})
    assert reply.code == 0
    assert b"before" not in disk.small["config/topics.json"]


def test_a_table_that_cannot_be_written_at_the_end_keeps_no_store_from_closing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class OddDisk(SimDisk):
        def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
            if path == TOPICS_FILE and is_closing:
                raise OSError(errno.EIO, "Input/output error")
            super().replace(path, data, is_private=is_private)

    is_closing, disk = False, OddDisk()
    exchange = Exchange(disk=disk)
    exchange.create_topic("T")
    exchange.core.broker.topics.get_or_create("more", now_ms=exchange.now_ms)
    is_closing = True
    exchange.core.close(exchange.now_ms)
    assert "Input/output error (topics and groups); the next start will read" in caplog.text
    assert "abort" not in disk.small, "the store is whole"


def test_a_broker_ends_and_starts_though_a_full_disk_has_no_room_for_its_tables(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    caller = exchange.connect()
    caller.send("T", b"1")
    offset = {"consumerGroup": "G", "topic": "T", "queueId": "0", "commitOffset": "1"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, offset)
    exchange.disk.room = exchange.disk.used
    exchange.disk.small.pop(TOPICS_FILE)
    exchange.reopen()
    assert "consumerOffset.json: 1 blocks wanted" in caplog.text
    assert "the next start will read the version saved before" in caplog.text
    assert "topics.json: 1 blocks wanted; retrying until it is saved" in caplog.text
    exchange.disk.room = None
    exchange.advance(5_000)
    assert exchange.connect().bodies("T") == [b"1"]
    assert TOPICS_FILE in exchange.disk.small
