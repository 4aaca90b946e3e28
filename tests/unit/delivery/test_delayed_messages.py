from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.base.store_settings import StoreSettings
from escrowmq.delivery.delayed_messages import DelayRules, delay_message, restore_message

NOW_MS = 1_700_000_000_500
RULES = DelayRules(StoreSettings(), BrokerSettings())


def message(properties: dict[str, str], *, sys_flag: int = 0, topic: str = "T") -> Message:
    return Message(topic=topic, body=b"b", queue_id=3, sys_flag=sys_flag, properties=properties)


def delayed(given_message: Message, rules: DelayRules = RULES) -> Message:
    found = delay_message(given_message, NOW_MS, rules)
    assert isinstance(found, Message)
    return found


@pytest.mark.parametrize(
    ("level", "queue_id", "kept"),
    [("1", 0, "1"), ("18", 17, "18"), ("99", 17, "18"), ("+3", 2, "3")],
)
def test_a_level_goes_to_its_queue_of_the_schedule_topic(
    level: str, queue_id: int, kept: str
) -> None:
    sent = message({"DELAY": level, "TIMER_DELAY_SEC": "5", "KEYS": "k"})
    stored = delayed(sent)
    assert (stored.topic, stored.queue_id) == (Topic.SCHEDULE, queue_id)
    assert stored.properties == {"DELAY": kept, "KEYS": "k", "REAL_TOPIC": "T", "REAL_QID": "3"}
    assert sent.topic == "T"
    assert "REAL_TOPIC" not in sent.properties


@pytest.mark.parametrize("properties", [{}, {"DELAY": "0"}, {"DELAY": "-1"}, {"KEYS": "k"}])
def test_what_asks_for_no_delay_is_left_alone(properties: dict[str, str]) -> None:
    sent = message(properties)
    assert delayed(sent) is sent


@pytest.mark.parametrize("topic", [Topic.HALF, Topic.OP, Topic.SCHEDULE, Topic.TIMER])
def test_system_topics_are_left_alone(topic: str) -> None:
    sent = message({"DELAY": "3", "TIMER_DELAY_SEC": "5"}, topic=topic)
    assert delayed(sent) is sent


@pytest.mark.parametrize(("sys_flag", "moves"), [(0, True), (8, True), (4, False), (12, False)])
def test_only_plain_and_committed_messages_are_delayed(sys_flag: int, moves: bool) -> None:
    assert (delayed(message({"DELAY": "3"}, sys_flag=sys_flag)).topic == Topic.SCHEDULE) is moves


@pytest.mark.parametrize(
    ("wish", "slot_ms"),
    [
        ({"TIMER_DELIVER_MS": "1700000005000"}, 1_700_000_004_000),
        ({"TIMER_DELIVER_MS": "1700000005001"}, 1_700_000_005_000),
        ({"TIMER_DELAY_MS": "4500"}, 1_700_000_004_000),
        ({"TIMER_DELAY_SEC": "5"}, 1_700_000_005_000),
        ({"TIMER_DELAY_SEC": "5", "TIMER_DELAY_MS": "9000"}, 1_700_000_005_000),
        ({"TIMER_DELAY_MS": "9000", "TIMER_DELIVER_MS": "1"}, 1_700_000_009_000),
        ({"TIMER_DELAY_SEC": "259200"}, 1_700_259_200_000),
    ],
)
def test_a_wish_is_rounded_to_the_slot_before_it(wish: dict[str, str], slot_ms: int) -> None:
    stored = delayed(message(wish))
    assert (stored.topic, stored.queue_id) == (Topic.TIMER, 0)
    assert stored.properties == {
        **wish, "TIMER_OUT_MS": str(slot_ms), "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip


@pytest.mark.parametrize(
    "wish",
    [
        {"TIMER_DELIVER_MS": "1700000000500"},
        {"TIMER_DELAY_SEC": "0"},
        {"TIMER_DELAY_MS": "-5"},
        {"TIMER_OUT_MS": "1", "TIMER_DELAY_SEC": "5"},
    ],
)
def test_what_is_due_already_is_left_alone(wish: dict[str, str]) -> None:
    sent = message(wish)
    assert delayed(sent) is sent


@pytest.mark.parametrize(
    ("properties", "code"),
    [
        ({"TIMER_DELAY_SEC": "259201"}, 13),
        ({"TIMER_DELIVER_MS": "soon"}, 13),
        ({"TIMER_DELIVER_MS": "9" * 30}, 13),
        (
            {"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "T+u"},
            13,
        ),
        ({"DELAY": "x"}, 13),
    ],
)
def test_what_cannot_be_is_refused(properties: dict[str, str], code: int) -> None:
    refused = delay_message(message(properties), NOW_MS, RULES)
    assert isinstance(refused, Refusal)
    assert refused.code == code


def test_the_peer_s_remarks_are_ours() -> None:
    refused = delay_message(message({"TIMER_DELAY_SEC": "999999"}), NOW_MS, RULES)
    assert isinstance(refused, Refusal)
    assert refused.remark == (
        "timer message illegal, the delay time should not be bigger than the max delay "
        "259200000ms; or if set del msg, the delay time should be bigger than the current time"
    )
    without = DelayRules(StoreSettings(), BrokerSettings(has_timer=False))
    refused = delay_message(message({"TIMER_DELAY_SEC": "5"}), NOW_MS, without)
    assert isinstance(refused, Refusal)
    assert (refused.code, refused.remark) == (
        1,
        "accurate timer message is not enabled, timerWheelEnable is false",
    )


def stored(given_message: Message) -> StoredMessage:
    fields = {name: getattr(given_message, name) for name in given_message.__struct_fields__}
    return StoredMessage(**fields, queue_offset=0, log_offset=0, stored_ms=NOW_MS, record_size=99)


@given(
    st.sampled_from(
        [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "7"}, {"TIMER_DELIVER_MS": "1800000000000"}]
    ),
    st.dictionaries(st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY"]), st.text(max_size=5)),
    st.sampled_from([0, 8]),
    st.integers(0, 7),
)
def test_a_delayed_message_is_restored_whole(
    wish: dict[str, str], properties: dict[str, str], sys_flag: int, reconsume_times: int
) -> None:
    rules = DelayRules(StoreSettings(), BrokerSettings(timer_delay_max_s=10**9))
    sent = message({**wish, **properties}, sys_flag=sys_flag)
    sent.reconsume_times = reconsume_times
    back = restore_message(stored(delayed(sent, rules)))
    assert back is not None
    assert (back.topic, back.queue_id, back.body) == ("T", 3, b"b")
    assert (back.sys_flag, back.reconsume_times) == (sys_flag, reconsume_times)
    assert properties.items() <= back.properties.items()


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"REAL_TOPIC": "T"},
        {"REAL_TOPIC": "T", "REAL_QID": "x"},
        {"REAL_TOPIC": Topic.HALF, "REAL_QID": "0"},
    ],
)
def test_a_record_that_names_no_place_is_not_restored(properties: dict[str, str]) -> None:
    assert restore_message(stored(message(properties))) is None


def test_the_checksum_of_the_old_record_is_not_copied() -> None:
    source = stored(message({"REAL_TOPIC": "T", "REAL_QID": "0", "__CRC32#": "x"}))
    back = restore_message(source, TIMER_DEQUEUE_MS="5")
    assert back is not None
    assert back.properties == {"REAL_TOPIC": "T", "REAL_QID": "0", "TIMER_DEQUEUE_MS": "5"}
