from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage, Topic
from escrowmq.delivery.timer_records import delivery_ms, recall_key

SLOT_MS = 5_000


def record(properties: dict[str, str], stored_ms: int = 1_000) -> StoredMessage:
    return StoredMessage(
        topic=Topic.TIMER, body=b"", properties=properties, queue_offset=0, log_offset=0,
        stored_ms=stored_ms, record_size=100,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({"TIMER_DELIVER_MS": "5300"}, 5_300),
        ({"TIMER_DELAY_MS": "4300"}, 5_300),
        ({"TIMER_DELAY_SEC": "4"}, 5_001),
        ({"TIMER_DELIVER_MS": "9000"}, 6_000),
        ({"TIMER_DELIVER_MS": "soon"}, 6_000),
        ({}, 6_000),
        ({"TIMER_DELIVER_MS": "5300", "TIMER_DEL_UNIQKEY": "T+u"}, 6_001),
    ],
)
def test_a_record_is_due_within_its_slot_and_a_recall_after_it(
    properties: dict[str, str], due_ms: int
) -> None:
    assert delivery_ms(record(properties), SLOT_MS) == due_ms


def test_a_message_is_recalled_by_its_topic_and_key() -> None:
    assert recall_key(record({"REAL_TOPIC": "T", "UNIQ_KEY": "u"})) == "T+u"
