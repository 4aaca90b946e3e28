"""Pop requests and receipts."""

import pytest

from escrowmq.base.message import StoredMessage
from escrowmq.client.core.popping import ack_fields, hidden_ms, pop_fields, receipt_of
from escrowmq.client.core.subscription import Subscription
from escrowmq.codec.pop_receipt import PopReceipt, decode_receipt
from escrowmq.errors import RemoteProtocolError

EXT = {"startOffsetInfo": "0 3 7;1 0 2", "popTime": "1000", "invisibleTime": "60000",
       "reviveQid": "5"}  # fmt: skip


def stored(topic: str = "T", *, receipt: str = "", queue_id: int = 3) -> StoredMessage:
    return StoredMessage(
        topic=topic, body=b"x", queue_id=queue_id, queue_offset=9, log_offset=100, stored_ms=1,
        record_size=10, properties={"POP_CK": receipt} if receipt else {},
    )  # fmt: skip


def test_a_pop_names_all_that_a_broker_needs() -> None:
    wanted = Subscription(topic="T", expression="a")
    fields = pop_fields(
        wanted, group="g", count_max=100, invisible_ms=60_000, poll_ms=15_000, now_ms=5,
        is_from_first=True,
    )  # fmt: skip
    assert fields == {
        "consumerGroup": "g", "topic": "T", "queueId": "-1", "maxMsgNums": "32",
        "invisibleTime": "60000", "pollTime": "15000", "bornTime": "5", "initMode": "0",
        "expType": "TAG", "exp": "a", "order": "false",
    }  # fmt: skip
    later = pop_fields(
        wanted, group="g", count_max=1, invisible_ms=1, poll_ms=1, now_ms=5, is_from_first=False
    )
    assert (later["initMode"], later["maxMsgNums"]) == ("1", "1")


def test_a_receipt_is_put_together_from_the_answer() -> None:
    receipt = receipt_of(stored(), EXT, broker_name="b")
    assert receipt == PopReceipt(7, 1000, 60_000, 5, 0, "b", 3, 9)
    retried = receipt_of(stored("%RETRY%g_T", queue_id=0), EXT, broker_name="b")
    assert (retried.kind, retried.start_offset) == (1, 2)
    fields = ack_fields(retried, topic="T", group="g")
    assert (fields["topic"], fields["queueId"], fields["offset"]) == ("%RETRY%g_T", "0", "9")
    assert decode_receipt(fields["extraInfo"]) == retried


def test_a_message_that_comes_again_brings_its_own() -> None:
    receipt = receipt_of(stored(receipt="4 1 2 3 2 other 0 8"), {}, broker_name="b")
    assert receipt == PopReceipt(4, 1, 2, 3, 2, "other", 0, 8)
    assert ack_fields(receipt, topic="T", group="g")["topic"] == "%RETRY%g+T"


@pytest.mark.parametrize("missing", EXT)
def test_an_answer_that_says_too_little_is_refused(missing: str) -> None:
    ext = {name: value for name, value in EXT.items() if name != missing}
    with pytest.raises(RemoteProtocolError, match="queue 3"):
        receipt_of(stored(), ext, broker_name="b")


@pytest.mark.parametrize(
    ("level", "before", "hidden"),
    [(0, 0, 10_000), (0, 1, 30_000), (0, 99, 7_200_000), (1, 5, 1_000), (18, 0, 7_200_000)],
)
def test_failures_hide_a_message_longer_and_longer(level: int, before: int, hidden: int) -> None:
    assert hidden_ms(level, deliveries_before=before) == hidden
