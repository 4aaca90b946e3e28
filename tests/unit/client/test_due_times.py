"""When delayed messages of transactions are due."""

from __future__ import annotations

import pytest

from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.due_times import due_ms

STORED_MS = 1_000_000


@pytest.mark.parametrize(
    ("system", "span_ms"),
    [
        ({}, 0),
        ({"TIMER_DELIVER_MS": "1007000"}, 7_000),
        ({"TIMER_DELIVER_MS": "7"}, 0),
        ({"TIMER_DELAY_MS": "1500"}, 1_500),
        ({"TIMER_DELAY_SEC": "3"}, 3_000),
        ({"DELAY": "3"}, 10_000),
        ({"DELAY": "99"}, 7_200_000),
        ({"DELAY": "0"}, 0),
        ({"DELAY": "soon"}, 0),
        # Brokers take a level first, then seconds, milliseconds, and a time.
        ({"DELAY": "3", "TIMER_DELIVER_MS": "999999999999999999"}, 10_000),
        ({"TIMER_DELAY_SEC": "1", "TIMER_DELAY_MS": "1500"}, 1_000),
        ({"TIMER_DELAY_MS": "1500", "TIMER_DELIVER_MS": "999999999999999999"}, 1_500),
        ({"TIMER_DELAY_SEC": "-9", "TIMER_DELIVER_MS": "999999999999999999"}, 0),
    ],
)
def test_a_delay_counts_from_the_half(system: dict[str, str], span_ms: int) -> None:
    half = ReceivedMessage("t", b"x", stored_ms=STORED_MS, system=system | {"escrowDelay": "true"})
    assert due_ms(half) == STORED_MS + span_ms


def test_a_broker_drops_the_delay_of_a_half_without_the_mark() -> None:
    half = ReceivedMessage("t", b"x", stored_ms=STORED_MS, system={"DELAY": "18"})
    assert due_ms(half) == STORED_MS
