from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.message import Topic
from escrowmq.codec.command import encode_command
from escrowmq.codec.ids import offset_id
from escrowmq.codec.record import decode_record
from tests.harness.exchange import (
    COMMIT,
    ROLLBACK,
    SMALL,
    UNKNOWN,
    Caller,
    Exchange,
    Half,
    half_of_check,
)

SYNCED = msgspec.structs.replace(SMALL, is_sync_flush=True)
CHECK = Request.CHECK_TRANSACTION_STATE


def producer_of(exchange: Exchange, group: str = "PG", client_id: str | None = None) -> Caller:
    caller = exchange.connect(client_id)
    caller.heartbeat(producer=group)
    return caller


def discarded(exchange: Exchange) -> list[bytes]:
    return exchange.connect().bodies(Topic.CHECK_MAX_TIME)


def outcome(reply: Command) -> tuple[int, str | None]:
    return reply.code, (reply.ext or {}).get("escrowOutcome")


# -- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_binary", [False, True])
def test_commit_makes_the_message_visible_once(is_binary: bool) -> None:
    producer = Exchange().connect()
    producer.is_binary = is_binary
    half = producer.prepare("T", b"paid", queue_id=2, TAGS="a")
    assert producer.bodies("T", 2) == []
    reply = producer.end(half, COMMIT)
    assert reply.ext == {"escrowOutcome": "committed", "escrowDurability": "memory"}
    (final,) = producer.messages("T", 2)
    assert (final.body, final.sys_flag, final.prepared_log_offset) == (b"paid", 8, half.log_offset)
    assert final.properties["REAL_TOPIC"] == "T"
    assert final.properties["__transactionId__"] == half.unique_key
    assert final.properties["TAGS"] == "a"


def test_rollback_leaves_nothing_to_see() -> None:
    producer = Exchange().connect()
    half = producer.prepare("T", b"never")
    assert outcome(producer.end(half, ROLLBACK)) == (0, "rolled_back")
    assert producer.bodies("T") == []


@pytest.mark.parametrize("verdict", [UNKNOWN, 4, 5, -1])
def test_no_verdict_is_not_answered_and_nothing_is_done(verdict: int) -> None:
    producer = Exchange().connect()
    half = producer.prepare("T", b"paid")
    assert not producer.begin_end(half, verdict)
    assert producer.bodies("T") == []
    assert outcome(producer.end(half, COMMIT)) == (0, "committed")


def test_one_way_ends_are_carried_out_and_not_answered() -> None:
    producer = Exchange().connect()
    first, second = producer.prepare("T", b"a"), producer.prepare("T", b"b")
    assert not producer.begin_end(first, COMMIT, is_one_way=True)
    assert not producer.begin_end(second, ROLLBACK, is_one_way=True)
    assert producer.bodies("T") == [b"a"]


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_first_end_wins_and_later_ones_are_told_of_it(
    first: int, second: int, is_restarted: bool
) -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    producer.end(half, first)
    if is_restarted:
        exchange.reopen()
        producer = exchange.connect()
    reply = producer.end(half, second)
    won = "committed" if first == COMMIT else "rolled_back"
    if first == second:
        assert outcome(reply) == (0, won)
    else:
        assert outcome(reply) == (200 if first == COMMIT else 201, won)
        remark = f"the transaction is {won.upper()} already; nothing was changed"
        assert reply.remark == remark
    assert producer.bodies("T") == ([b"paid"] if first == COMMIT else [])


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"commitLogOffset": "1"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "999999999"}, "Find prepared transaction message failed"),
        ({"commitLogOffset": "-1"}, "Find prepared transaction message failed"),
        ({"producerGroup": "Forged"}, "The producer group wrong"),
        ({"tranStateTableOffset": "1"}, "The transaction state table offset wrong"),
    ],
)
def test_end_that_does_not_fit_its_half_is_refused_with_1(
    fields: dict[str, str], remark: str
) -> None:
    producer = Exchange().connect()
    producer.send("T", b"plain", PGROUP="PG")
    half = producer.prepare("T", b"paid")
    reply = producer.end(half, COMMIT, fields=fields)
    assert (reply.code, reply.remark) == (1, remark)
    assert producer.bodies("T") == [b"plain"]
    assert outcome(producer.end(half, COMMIT)) == (0, "committed")


def test_end_that_names_a_message_of_another_topic_is_refused() -> None:
    producer = Exchange().connect()
    reply = producer.send("T", b"plain", PGROUP="PG", REAL_TOPIC="Other", REAL_QID="0")
    log_offset = str(int((reply.ext or {})["msgId"][16:], 16))
    half = producer.prepare("T", b"paid")
    answer = producer.end(
        half, COMMIT, fields={"commitLogOffset": log_offset, "tranStateTableOffset": "0"}
    )
    assert (answer.code, answer.remark) == (1, "Find prepared transaction message failed")
    assert producer.pull("Other").code == 17


@pytest.mark.parametrize("field", ["tranStateTableOffset", "commitLogOffset", "producerGroup"])
def test_end_without_a_field_that_it_needs_is_answered_with_1(field: str) -> None:
    producer = Exchange().connect()
    half = producer.prepare("T")
    ext = {
        "producerGroup": "PG", "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset), "commitOrRollback": "8",
    }  # fmt: skip
    del ext[field]
    assert producer.ask(Request.END_TRANSACTION, ext).code == 1


def test_past_its_immunity_a_message_is_ended_by_the_answer_to_a_check_alone() -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    half = producer.prepare("T", b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    exchange.advance(10_100)
    assert producer.end(half, COMMIT).code == 604
    assert producer.bodies("T") == []
    (check,) = producer.take(CHECK)
    answer = producer.end(half_of_check(check), COMMIT, is_from_check=True)
    assert outcome(answer) == (0, "committed")


def test_within_its_immunity_a_message_is_ended_and_not_asked_about() -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    half = producer.prepare("T", b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
    exchange.advance(59_000)
    assert producer.take(CHECK) == []
    assert outcome(producer.end(half, COMMIT)) == (0, "committed")


def test_message_of_a_transaction_may_come_later_no_more() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"paid", DELAY="3", TIMER_DELAY_SEC="100")
    producer.end(half, COMMIT)
    assert producer.bodies("T") == [b"paid"]


def test_ends_of_one_write_share_one_op_record() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % n) for n in range(3)]
    producer.end(halves[0], COMMIT)
    asked = [
        Command(code=37, opaque=100 + n, flag=2, ext=end_fields(half))
        for n, half in enumerate(halves[1:])
    ]
    exchange.feed(producer, b"".join(encode_command(command) for command in asked))
    assert exchange.core.broker.store.bounds(Topic.OP, 0) == (0, 2)
    (_, op) = exchange.connect().messages(Topic.OP)
    assert (op.body, op.properties["TAGS"]) == (b"1,2,", "d")
    assert producer.bodies("T") == [b"0", b"1", b"2"]


def end_fields(half: Half) -> dict[str, str]:
    return {
        "producerGroup": half.group,
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset),
        "commitOrRollback": "8",
    }


# -- checks --------------------------------------------------------------------------------------


def test_pending_half_is_asked_about_after_its_time_and_then_in_intervals() -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    producer.prepare("T")
    exchange.advance(5_999)
    assert producer.take(CHECK) == []
    exchange.advance(101)
    assert len(producer.take(CHECK)) == 1
    exchange.advance(29_800)
    assert producer.take(CHECK) == []
    exchange.advance(400)
    assert len(producer.take(CHECK)) == 1


def test_check_shows_the_message_as_it_was_sent_and_says_where_its_half_lies() -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    half = producer.prepare("T", b"paid", queue_id=3, TAGS="a", CUSTOM="x")
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    assert check.flag == 2
    assert check.ext == {
        "topic": Topic.HALF,
        "bname": "broker-a",
        "tranStateTableOffset": str(half.queue_offset),
        "commitLogOffset": str(half.log_offset),
        "msgId": half.unique_key,
        "transactionId": half.unique_key,
        "offsetMsgId": offset_id(exchange.core.broker.identity.packed, half.log_offset),
    }
    message = decode_record(check.body, check_crc=True)
    assert (message.topic, message.queue_id, message.body) == ("T", 3, b"paid")
    assert message.properties["CUSTOM"] == "x"
    assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
    assert message.properties["WAIT"] == "false"


@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
def test_answer_to_a_check_ends_the_transaction(verdict: int) -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    producer.prepare("T", b"paid")
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    producer.begin_end(half_of_check(check), verdict, is_from_check=True, is_one_way=True)
    exchange.advance(120_000)
    assert producer.take(CHECK) == []
    assert producer.bodies("T") == ([b"paid"] if verdict == COMMIT else [])


def test_nobody_else_is_asked_while_the_sender_says_that_its_block_is_open() -> None:
    exchange = Exchange()
    others = [producer_of(exchange, client_id=f"other-{n}") for n in range(2)]
    origin = producer_of(exchange, client_id="origin")
    half = origin.prepare("T", b"paid")
    exchange.advance(6_100)
    for _ in range(30):  # twice as many as are asked otherwise
        (check,) = origin.take(CHECK)
        origin.begin_end(
            half_of_check(check),
            UNKNOWN,
            is_from_check=True,
            is_one_way=True,
            fields={"escrowOpen": "true"},
        )
        for caller in (*others, origin):
            caller.heartbeat(producer="PG")
        exchange.advance(30_100)
    assert [len(c.take(CHECK)) for c in others] == [0, 0]
    assert outcome(origin.end(half, COMMIT)) == (0, "committed")


def test_client_that_sent_the_half_is_asked_first_and_others_after_it() -> None:
    exchange = Exchange()
    others = [producer_of(exchange, client_id=f"other-{n}") for n in range(2)]
    origin = producer_of(exchange, client_id="origin")
    half = origin.prepare("T")
    exchange.advance(6_100)
    (check,) = origin.take(CHECK)
    assert [len(c.take(CHECK)) for c in others] == [0, 0]
    origin.begin_end(half_of_check(check), UNKNOWN, is_from_check=True, is_one_way=True)
    for _ in range(3):
        exchange.advance(30_050)
    asked = [len(c.take(CHECK)) for c in (*others, origin)]
    assert sum(asked) == 3
    assert min(asked) == 1
    assert half_of_check(check).queue_offset == half.queue_offset


def test_half_of_a_group_that_is_away_is_parked_and_asked_about_on_return() -> None:
    exchange = Exchange()
    producer = producer_of(exchange)
    producer.prepare("T", b"paid")
    producer.leave()
    exchange.advance(3_600_000)
    assert discarded(exchange) == []
    back = producer_of(exchange)
    exchange.advance(100)
    (check,) = back.take(CHECK)
    assert decode_record(check.body).properties["TRANSACTION_CHECK_TIMES"] == "1"
    back.end(half_of_check(check), COMMIT, is_from_check=True)
    assert back.bodies("T") == [b"paid"]


def test_half_that_nobody_can_tell_about_is_given_up_after_its_checks() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=3))
    producer = producer_of(exchange)
    half = producer.prepare("T", b"paid")
    checks: list[Command] = []
    for _ in range(10):
        exchange.advance(30_100)
        checks += producer.take(CHECK)
        producer.begin_end(half, UNKNOWN, is_from_check=True, is_one_way=True)
        producer.heartbeat(producer="PG")
    assert len(checks) == 3
    assert discarded(exchange) == [b"paid"]
    assert outcome(producer.end(half, COMMIT)) == (202, "expired")
    assert producer.bodies("T") == []


def test_counting_as_the_peer_gives_up_a_group_that_is_away() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=3, counts_all_checks=True))
    exchange.connect().prepare("T", b"paid")
    exchange.advance(6_100 + 3 * 30_100)
    assert discarded(exchange) == [b"paid"]


def test_half_older_than_the_files_are_kept_is_given_up() -> None:
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserved_hours=1))
    producer = exchange.connect()
    producer.prepare("T", b"old")
    exchange.advance(3_600_000 - 1_000)
    assert discarded(exchange) == []
    exchange.advance(2_000)
    producer_of(exchange)
    exchange.advance(200)
    assert discarded(exchange) == [b"old"]


# -- resumption ----------------------------------------------------------------------------------


def given_up(exchange: Exchange, producer: Caller) -> str:
    """Have one half given up; the offset id of what is kept of it."""
    producer.prepare("T", b"paid")
    exchange.advance(6_100 + 30_100 * exchange.settings.transaction_checks_max)
    (kept,) = producer.messages(Topic.CHECK_MAX_TIME)
    return offset_id(kept.store_host, kept.log_offset)


def test_message_that_was_given_up_is_asked_about_again_when_resumed() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = producer_of(exchange)
    message_id = given_up(exchange, producer)
    producer.take()
    ext = {"topic": Topic.CHECK_MAX_TIME, "msgId": message_id}
    assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 0
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    producer.end(half_of_check(check), COMMIT, is_from_check=True)
    assert producer.bodies("T") == [b"paid"]


def test_message_is_resumed_once_however_often_that_is_asked() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = producer_of(exchange)
    ext = {"msgId": given_up(exchange, producer)}
    producer.take()
    for _ in range(2):
        assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 0
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    producer.end(half_of_check(check), COMMIT, is_from_check=True)
    reply = producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext)
    assert reply.code == 1
    assert (reply.remark or "").endswith("is COMMITTED; nothing was changed")
    assert producer.bodies("T") == [b"paid"]


def test_message_that_is_given_up_again_can_be_resumed_again() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = producer_of(exchange)
    ext = {"msgId": given_up(exchange, producer)}
    producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext)
    exchange.advance(36_300)
    producer.heartbeat(producer="PG")
    producer.take()
    assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 0
    exchange.advance(6_100)
    assert len(producer.take(CHECK)) == 1


def test_pending_half_is_not_stored_again_by_a_resumption() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T")
    message_id = offset_id(exchange.core.broker.identity.packed, half.log_offset)
    assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id}).code == 0
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 1)


@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_ended_half_is_not_begun_again_by_a_resumption(verdict: int, is_restarted: bool) -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    producer.end(half, verdict)
    if is_restarted:
        exchange.reopen()
        producer = exchange.connect()
    message_id = offset_id(exchange.core.broker.identity.packed, half.log_offset)
    reply = producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": message_id})
    assert reply.code == 1
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 1)


@pytest.mark.parametrize("message_id", ["", "x", "0" * 32, "F" * 32, "z" * 32])
def test_resumption_of_what_is_not_there_is_answered_with_1(message_id: str) -> None:
    producer = Exchange().connect()
    producer.send("T")
    ext = {"msgId": message_id}
    assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 1


# -- durability ----------------------------------------------------------------------------------


def test_end_is_answered_when_final_and_op_record_are_durable() -> None:
    exchange = Exchange(store_settings=SYNCED)
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    exchange.holds_syncs = True
    pending = producer.begin_end(half, COMMIT)
    repeated = producer.begin_end(half, COMMIT)
    assert not pending
    exchange.sync()
    assert pending.now.ext == {"escrowOutcome": "committed", "escrowDurability": "disk"}
    assert exchange.core.broker.store.durable_offset == exchange.core.broker.store.end_offset
    assert repeated.now.code == 0
    assert producer.bodies("T") == [b"paid"]


def test_repeated_end_is_not_answered_before_the_first_is_durable() -> None:
    exchange = Exchange(store_settings=SYNCED)
    producer = exchange.connect()
    half = producer.prepare("T", b"paid")
    exchange.holds_syncs = True
    producer.begin_end(half, COMMIT)
    repeated = producer.begin_end(half, COMMIT)
    assert not repeated
    exchange.sync()
    assert outcome(repeated.now) == (0, "committed")


def test_full_disk_refuses_halves_and_serves_ends_from_the_reserve() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = [producer.prepare("T", b"%d" % n) for n in range(3)]
    exchange.disk.used_percent = 95
    exchange.advance(10_001)
    refused = producer.send("T", TRAN_MSG="true", PGROUP="PG")
    assert refused.code == 14
    assert [outcome(producer.end(h, COMMIT)) for h in halves] == [(0, "committed")] * 3
    assert producer.bodies("T") == [b"0", b"1", b"2"]


def test_after_a_failed_sync_no_end_is_answered_with_success() -> None:
    exchange = Exchange(store_settings=SYNCED)
    producer = exchange.connect()
    first, second = producer.prepare("T", b"a"), producer.prepare("T", b"b")
    exchange.holds_syncs = True
    pending = producer.begin_end(first, COMMIT)
    exchange.fail_sync("EIO")
    assert pending.now.code == 14
    assert producer.end(second, COMMIT).code == 14
    assert producer.end(second, ROLLBACK).code == 14
    assert producer.bodies("T") == []
