from __future__ import annotations

from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import SendResult, SendStatus, half_properties, is_stored_safely
from escrowmq.client.half_safety import half_not_safe_error


def test_a_half_says_what_is_to_be_done_at_the_commit() -> None:
    assert half_properties(Message("T", b"x"), group="g") == {"TRAN_MSG": "true", "PGROUP": "g"}
    keyed = half_properties(Message("T", b"x", order_key="k", delay=3), group="g")
    assert (keyed["escrowOrderKey"], keyed["escrowDelay"]) == ("k", "true")


def test_a_half_on_fewer_disks_than_asked_for_is_not_safe() -> None:
    queue = MessageQueue("T", "b", 0)
    for status in SendStatus:
        result = SendResult(status=status, message_id="m", queue=queue, offset=0)
        assert is_stored_safely(result) is (status is SendStatus.OK)
        assert status.name in str(half_not_safe_error(result))
