"""Which final is of which half, in stores that RocketMQ 5.5 wrote. (Those of others are in
test_pending_recovery.py.)"""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.message import Message, StoredMessage, Topic
from escrowmq.txn.doubled_halves import has_final
from escrowmq.txn.half_identity import identity_of_half, is_final_of
from escrowmq.txn.state import Verdict

from .ground import Ground


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def final_of_rocketmq_5_5(ground: Ground, half: StoredMessage, **changed: object) -> None:
    """What RocketMQ 5.5 stores at a commit: the half without the place it was meant for."""
    kept = {k: v for k, v in half.properties.items() if k not in ("REAL_TOPIC", "REAL_QID")}
    final = Message(
        topic="T", body=half.body, properties=kept, sys_flag=8, prepared_log_offset=half.log_offset
    )
    ground.store.put(msgspec.structs.replace(final, **changed), ground.now_ms)


@pytest.mark.parametrize("checks", [{}, {"TRANSACTION_CHECK_TIMES": "1"}])
def test_a_final_of_rocketmq_5_5_ends_its_half_although_the_op_record_was_lost(
    ground: Ground, checks: dict[str, str]
) -> None:
    ground.store.put(Message(topic="Other", body=b"x"), ground.now_ms)
    half = ground.prepare(b"theirs", **checks)
    assert not has_final(half, ground.store)
    final_of_rocketmq_5_5(ground, half)
    assert has_final(half, ground.store)
    found = ground.reopen()
    assert (found.pending_count, found.derived_count) == (0, 1)
    ground.end(half, Verdict.COMMIT)
    assert ground.messages("T", 0) + ground.messages("T", 1) != []
    assert len(ground.messages("T", 0) + ground.messages("T", 1)) == 1


@pytest.mark.parametrize(
    "changed", [{"topic": "Other"}, {"prepared_log_offset": 0}, {"sys_flag": 0}]
)
def test_a_message_that_only_resembles_a_final_of_rocketmq_5_5_ends_nothing(
    ground: Ground, changed: dict[str, object]
) -> None:
    ground.store.put(Message(topic="Other", body=b"x"), ground.now_ms)
    half = ground.prepare(b"theirs")
    final_of_rocketmq_5_5(ground, half, **changed)
    assert not has_final(half, ground.store)
    assert ground.reopen().pending_count == 1


@pytest.mark.parametrize(("topic", "is_final"), [(Topic.TIMER, True), ("Other", False)])
def test_the_delayed_form_of_a_final_is_of_the_half_whose_topic_it_keeps(
    ground: Ground, topic: str, *, is_final: bool
) -> None:
    half = ground.prepare(b"later")
    final = Message(
        topic=topic, body=b"later", properties=half.properties, sys_flag=8,
        prepared_log_offset=half.log_offset + 1,
    )  # fmt: skip
    assert is_final_of(final, identity_of_half(half.properties)) == is_final
