from __future__ import annotations

import pytest

from escrowmq.base.fixed_limits import CHECK_IMMUNITY_MAX_S
from escrowmq.base.message import StoredMessage
from escrowmq.txn.check_immunity import immunity_ms, is_past_immunity


@pytest.mark.parametrize(
    ("text", "wish_ms"),
    [
        (None, None),
        ("10", 10_000),
        ("0", 0),
        ("-1", None),
        ("x", None),
        ("", None),
        ("1.5", None),
        ("9" * 18, CHECK_IMMUNITY_MAX_S * 1000),
        ("9" * 30, None),
        ("\u0665", None),
    ],
)
def test_wish_for_no_checks(text: str | None, wish_ms: int | None) -> None:
    properties = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    assert immunity_ms(properties) == wish_ms


@pytest.mark.parametrize(
    ("text", "timeout_ms", "least_ms"),
    [("10", 6_000, 10_000), ("10", 60_000, 60_000), ("x", 6_000, 6_000), ("0", 0, 0)],
)
def test_a_half_with_a_wish_is_past_it_after_the_longer_of_both_times(
    text: str, timeout_ms: int, least_ms: int
) -> None:
    properties = {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    half = StoredMessage(
        topic="T", body=b"x", properties=properties, queue_offset=0, log_offset=0,
        stored_ms=1_000, record_size=9,
    )  # fmt: skip
    for passed_ms in (0, 1, 6_000, 6_001, 10_000, 10_001, 60_000, 60_001):
        is_past = passed_ms > least_ms
        assert is_past_immunity(half, 1_000 + passed_ms, timeout_ms) is is_past
