"""Which halves an operator means."""

import msgspec
import pytest

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.broker.requests.pending_filter import is_wanted_half
from escrowmq.codec.pending_bodies import HalfFilter


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (HalfFilter(), True),
        (HalfFilter(topic="T", group="G", transaction="order 1"), True),
        (HalfFilter(topic=Topic.HALF), False),
        (HalfFilter(group="T"), False),
        (HalfFilter(transaction="order 2"), False),
    ],
)
def test_a_record_says_it_by_its_properties(wanted: HalfFilter, *, is_meant: bool) -> None:
    half = StoredMessage(
        topic=Topic.HALF,
        body=b"1",
        queue_id=0,
        queue_offset=0,
        log_offset=0,
        stored_ms=0,
        record_size=0,
        properties={Property.REAL_TOPIC: "T", Property.PGROUP: "G", TRANSACTION: "order 1"},
    )
    assert is_wanted_half(half, wanted) is is_meant
    nameless = msgspec.structs.replace(half, properties={})
    assert is_wanted_half(nameless, wanted) is (wanted == HalfFilter())
