"""Which halves an operator means."""

import msgspec
import pytest

from escrowmq.base.message import Property, StoredMessage, Topic
from escrowmq.base.own_properties import TRANSACTION
from escrowmq.broker.requests.pending_filter import is_wanted_half, is_wanted_row
from escrowmq.codec.pending_bodies import Filter
from escrowmq.txn.pending import PendingRow

NOW_MS = 10_000
ROW = PendingRow(log_offset=0, stored_ms=4_000, due_ms=0, group="G", topic="T", origin="")


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (Filter(), True),
        (Filter(topic="T", group="G", min_age_ms=6_000, max_age_ms=6_000), True),
        (Filter(topic="G"), False),
        (Filter(group="T"), False),
        (Filter(min_age_ms=6_001), False),
        (Filter(max_age_ms=5_999), False),
        (Filter(max_age_ms=0), False),
    ],
)
def test_a_pending_half_is_known_by_its_row(wanted: Filter, *, is_meant: bool) -> None:
    assert is_wanted_row(ROW, wanted, NOW_MS) is is_meant


@pytest.mark.parametrize(
    ("wanted", "is_meant"),
    [
        (Filter(), True),
        (Filter(topic="T", group="G", transaction="order 1"), True),
        (Filter(topic=Topic.HALF), False),
        (Filter(group="T"), False),
        (Filter(transaction="order 2"), False),
    ],
)
def test_a_record_says_it_by_its_properties(wanted: Filter, *, is_meant: bool) -> None:
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
    assert is_wanted_half(nameless, wanted) is (wanted == Filter())
