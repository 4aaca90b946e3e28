"""What one message, request or record can hold stops nobody else's, no round, and no start."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.message import Message, Property, Topic
from escrowmq.base.own_properties import MESSAGES, TRANSACTION
from escrowmq.codec.properties import parse_number
from escrowmq.codec.record import decode_records
from escrowmq.delivery.revive_records import CHECK_POINT_TAG, ORDER_TAG
from escrowmq.errors import StorageError
from tests.harness.caller import Caller
from tests.harness.exchange import COMMIT, Exchange

INT_MAX = (1 << 31) - 1
REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
DIGITS = "9" * 5_000
"""More than Python reads as a number."""

HOLES = [DIGITS, "99999999999", "-1", "", "x", "\u0663", "1e5", str(1 << 63)]


@pytest.fixture(name="exchange")
def make_exchange() -> Exchange:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    return exchange


def pop(caller: Caller, topic: str = "T") -> list[Message]:
    ext = {
        "consumerGroup": "g", "topic": topic, "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0",
        "order": "false",
    }  # fmt: skip
    return list(decode_records(caller.ask(Request.POP_MESSAGE, ext).body))


def put(exchange: Exchange, topic: str, body: bytes = b"x", **properties: str) -> None:
    """A record as an older release, or RocketMQ, may have left it."""
    message = Message(topic=topic, body=body, properties=properties, born_ms=exchange.now_ms)
    assert exchange.core.broker.store.put(message, exchange.now_ms).log_offset >= 0


@pytest.mark.parametrize("text", HOLES)
def test_a_number_that_cannot_be_is_none(text: str) -> None:
    assert parse_number(text, most=INT_MAX) is None


def test_a_number_is_read_up_to_the_most_that_is_allowed() -> None:
    assert [parse_number(text, most=7) for text in ("0", "7", "007", "8")] == [0, 7, 7, None]
    assert parse_number(None, most=7) is None


@pytest.mark.parametrize("topic", [Topic.TIMER, REVIVE, Topic.REVIVE_PREFIX + "other"])
def test_topics_that_the_broker_reads_as_its_own_are_not_sent_to(topic: str) -> None:
    reply = Exchange().connect().send(topic)
    assert (reply.code, reply.remark) == (16, f"Sending message to topic[{topic}] is forbidden.")


@pytest.mark.parametrize("times", [INT_MAX, INT_MAX - 1, -(1 << 31)])
def test_a_popped_message_comes_again_whatever_its_count_of_deliveries(
    exchange: Exchange, times: int
) -> None:
    caller = exchange.connect()
    caller.send("T", b"odd", fields={"j": str(times)})
    caller.send("T", b"plain")
    assert len(pop(caller)) == 2
    exchange.advance(5_000)
    again = {message.body: message.reconsume_times for message in pop(caller)}
    assert again == {b"odd": min(times + 1, INT_MAX), b"plain": 1}
    exchange.reopen()
    assert exchange.connect().send("T").code == 0


def test_a_message_with_the_highest_count_can_be_sent_back(exchange: Exchange) -> None:
    caller = exchange.connect()
    caller.send("T", b"odd", fields={"j": str(INT_MAX)})
    (message,) = caller.messages("T")
    ext = {"group": "g", "offset": str(message.log_offset), "delayLevel": "1"}
    assert caller.ask(Request.CONSUMER_SEND_MSG_BACK, ext).code == 0


@pytest.mark.parametrize("queue_id", HOLES)
def test_a_timer_record_without_a_place_to_go_is_set_aside_and_the_next_delivered(
    exchange: Exchange, queue_id: str
) -> None:
    for slot in ("1", DIGITS):
        put(exchange, Topic.TIMER, TIMER_OUT_MS=slot, REAL_TOPIC="T", REAL_QID=queue_id)
    put(exchange, Topic.TIMER, b"good", TIMER_OUT_MS="1", REAL_TOPIC="T", REAL_QID="0")
    caller = exchange.connect()
    caller.send("T", b"wakes")
    exchange.advance(1_000)
    assert set(caller.bodies("T")) == {b"wakes", b"good"}
    assert exchange.core.assembly.measuring.set_aside_count() == 2
    exchange.crash()
    exchange.advance(1_000)
    assert set(exchange.connect().bodies("T")) == {b"wakes", b"good"}


@pytest.mark.parametrize("queue_id", HOLES)
def test_a_delayed_record_without_a_place_to_go_is_set_aside_and_the_next_delivered(
    exchange: Exchange, queue_id: str
) -> None:
    put(exchange, Topic.SCHEDULE, DELAY="1", REAL_TOPIC="T", REAL_QID=queue_id)
    put(exchange, Topic.SCHEDULE, b"good", DELAY=DIGITS, REAL_TOPIC="T", REAL_QID="0")
    caller = exchange.connect()
    caller.send("T", b"wakes")
    exchange.advance(10_000)
    assert set(caller.bodies("T")) == {b"wakes", b"good"}
    assert exchange.core.assembly.measuring.set_aside_count() == 1


@pytest.mark.parametrize(
    ("tag", "body"),
    [
        (CHECK_POINT_TAG, b'{"c":"g","t":"T","pt":1,"n":63,"so":-1,"it":-9}'),
        (CHECK_POINT_TAG, b'{"c":"g","t":"T","pt":1,"n":1,"so":99999999999999999999,"it":1}'),
        (CHECK_POINT_TAG, b'{"c":"g","t":"T","pt":1,"d":[99999999999999999999],"so":0,"it":1}'),
        (CHECK_POINT_TAG, b'{"c":"g","t":"T","pt":1,"n":1,"bm":-1,"q":-7,"so":0,"it":1}'),
        (ORDER_TAG, b'{"c":"g","t":"T","q":-1,"o":99999999999999999999}'),
        ("ack", b'{"c":"g","t":"T","pt":-1,"so":-1,"ao":-1}'),
        ("ack", b"\xff"),
    ],
)
def test_a_revive_record_that_makes_no_sense_stops_neither_pops_nor_the_start(
    exchange: Exchange, tag: str, body: bytes
) -> None:
    caller = exchange.connect()
    caller.send("T", b"kept")
    put(exchange, REVIVE, body, TAGS=tag, ESCROW_NEXT=DIGITS)
    assert [message.body for message in pop(caller)] == [b"kept"]
    exchange.advance(30_000)
    exchange.crash()
    exchange.advance(30_000)
    assert [message.body for message in pop(exchange.connect())] == [b"kept"]


@pytest.mark.parametrize("wanted", HOLES)
def test_a_half_that_claims_an_odd_number_of_messages_is_ended_and_given_up(wanted: str) -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    assert (TRANSACTION, MESSAGES) == ("escrowTransaction", "escrowMessages")
    caller.prepare("T", b"odd", group="PG", escrowTransaction="one", escrowMessages=wanted)
    caller.prepare("T", b"plain", group="PG")
    exchange.advance(120_000)
    assert exchange.core.transactions.engine.halves.counters.expired == 2
    assert exchange.core.transactions.engine.halves.quarantine == {}
    last = caller.prepare("T", b"last", group="PG")
    assert caller.end(last, COMMIT).code == 0
    assert caller.bodies("T") == [b"last"]


def test_a_half_that_cannot_be_judged_is_set_aside_and_the_next_is_asked_about(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    odd = caller.prepare("T", b"odd", group="PG")
    caller.prepare("T", b"plain", group="PG")
    checker, engine = exchange.core.transactions.checker, exchange.core.transactions.engine
    choose = checker._choose_producer

    def fail(members: object, row: object, queue_offset: int) -> object:
        if queue_offset == odd.queue_offset:
            raise ValueError("odd")
        return choose(members, row, queue_offset)  # type: ignore[arg-type]

    monkeypatch.setattr(checker, "_choose_producer", fail)
    exchange.advance(7_000)
    assert engine.halves.quarantine == {odd.queue_offset: "ValueError: odd"}
    assert len(caller.take(Request.CHECK_TRANSACTION_STATE)) == 1


def test_a_half_is_not_set_aside_for_an_error_of_the_disk(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = exchange.connect()
    caller.heartbeat(producer="PG")
    caller.prepare("T", b"plain", group="PG")
    checker = exchange.core.transactions.checker
    exchange.gets_over_errors = True

    def fail(*_: object) -> object:
        raise StorageError("no descriptor is left")

    with monkeypatch.context() as patch:
        patch.setattr(checker, "_choose_producer", fail)
        exchange.advance(7_000)
    assert exchange.core.transactions.engine.halves.quarantine == {}
    exchange.advance(5_000)
    assert len(caller.take(Request.CHECK_TRANSACTION_STATE)) == 1


def test_a_round_that_fails_keeps_nobody_else_from_being_served(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = exchange.connect()
    exchange.gets_over_errors = True

    def fail(_: int) -> None:
        raise ValueError("odd")

    for each in exchange.core.rounds._rounds:
        if each.name in ("the store", "transactions", "the timer", "pops", "access control"):
            monkeypatch.setattr(each, "wake", fail)
    held = caller.begin_pull("T", 0, hold_ms=5_000)
    offset = {"consumerGroup": "CG", "topic": "T", "queueId": "0", "commitOffset": "0"}
    caller.ask(Request.UPDATE_CONSUMER_OFFSET, offset)
    exchange.advance(60_000)
    assert held
    assert b'"T@CG"' in exchange.disk.small["config/consumerOffset.json"]
    assert set(exchange.core.rounds.failures) == {
        "the store", "transactions", "the timer", "pops", "access control",
    }  # fmt: skip
    names = [family.name for family in exchange.core.measure(exchange.now_ms)]
    assert "escrowmq_failed_rounds" in names


def test_a_part_that_fails_at_the_end_of_an_input_keeps_nothing_from_the_disk() -> None:
    exchange = Exchange()
    exchange.create_topic("T", 1)
    caller = exchange.connect()
    exchange.gets_over_errors = True

    def fail(_: int) -> None:
        raise ValueError("odd")

    exchange.core._settling[0] = fail, None  # type: ignore[assignment]
    held = caller.begin_pull("T", 0, hold_ms=5_000)
    assert caller.send("T", b"there").code == 0
    assert held
    assert exchange.core.rounds.failures["the end of an input"] > 0


def test_a_queue_that_no_topic_can_have_is_refused_by_the_store(exchange: Exchange) -> None:
    store = exchange.core.broker.store
    message = Message(topic="T", body=b"x", properties={Property.TAGS: "a"})
    for queue_id in (-1, 65_536, 1 << 40):
        odd = msgspec.structs.replace(message, queue_id=queue_id)
        assert store.put(odd, exchange.now_ms).status.name == "MESSAGE_ILLEGAL"
    for field in ("flag", "reconsume_times", "sys_flag"):
        odd = msgspec.structs.replace(message, **{field: 1 << 31})
        assert store.put(odd, exchange.now_ms).status.name == "MESSAGE_ILLEGAL"
    assert store.bounds("T", 0) == (0, 0)


def test_no_client_marks_a_message_as_the_commit_of_a_half(exchange: Exchange) -> None:
    caller = exchange.connect()
    caller.send("T", b"x", fields={"f": "8"})
    assert [message.sys_flag for message in caller.messages("T")] == [0]
