from __future__ import annotations

import pytest

from escrowmq.codec.pop_receipt import (
    PopReceipt,
    decode_offset_list,
    decode_receipt,
    encode_message_offsets,
    encode_order_counts,
    encode_receipt,
    encode_start_offsets,
    original_topic,
    retry_kind,
    retry_topic,
)
from escrowmq.errors import UsageError

RECEIPT = PopReceipt(1, 1795246692580, 15000, 1, 0, "broker-a", 0, 2)
TEXT = "1 1795246692580 15000 1 0 broker-a 0 2"


def test_a_receipt_is_the_peers() -> None:
    assert encode_receipt(RECEIPT) == TEXT
    assert decode_receipt(TEXT) == RECEIPT
    assert decode_receipt(TEXT + " 6900") == RECEIPT  # as a proxy hands it out
    assert (RECEIPT.due_ms, RECEIPT.is_orderly) == (1795246707580, False)
    assert decode_receipt("1 2 3 999 0 b").is_orderly


@pytest.mark.parametrize("text", ["", "1 2 3 4 5", "1 2 x 4 0 b 0 0", "1 2 3 4 0 b c d"])
def test_other_texts_are_no_receipts(text: str) -> None:
    with pytest.raises(UsageError):
        decode_receipt(text)


def test_retry_topics_in_both_spellings() -> None:
    assert retry_topic("T", "G", 0) == "T"
    assert retry_topic("T", "G", 1) == "%RETRY%G_T"
    assert retry_topic("T", "G", 2) == "%RETRY%G+T"
    assert [retry_kind(topic) for topic in ("T", "%RETRY%G_T", "%RETRY%G+T", "%RETRY%G")] == [
        0, 1, 2, 1,
    ]  # fmt: skip
    for topic in ("T", "%RETRY%G_T", "%RETRY%G+T"):
        assert original_topic(topic, "G") == "T"
    with pytest.raises(UsageError):
        retry_topic("T", "G", 3)


def test_lists() -> None:
    starts = encode_start_offsets([(0, 1, 5), (1, 0, 7)])
    assert starts == "0 1 5;1 0 7"
    assert decode_offset_list(starts) == {(0, "1"): [5], (1, "0"): [7]}
    offsets = encode_message_offsets([(0, 1, [5, 6, 9])])
    assert offsets == "0 1 5,6,9"
    assert decode_offset_list(offsets) == {(0, "1"): [5, 6, 9]}
    counts = encode_order_counts(0, 3, {8: 2}, 0)
    assert counts == "0 qo3%8 2;0 3 0"
    assert decode_offset_list(counts) == {(0, "qo3%8"): [2], (0, "3"): [0]}
    assert decode_offset_list("") == {}
    with pytest.raises(UsageError):
        decode_offset_list("1 2")
