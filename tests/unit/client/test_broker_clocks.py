"""Clocks of brokers, as they report them."""

from __future__ import annotations

import logging

import pytest

from escrowmq.client.broker_clocks import BrokerClocks, broker_now_ms
from escrowmq.errors import PermissionDenied

NOW_MS = 1_000_000_000


def runtime(now_ms: int) -> dict[str, str]:
    """What a broker reports that was started 90061 seconds before."""
    began_ms = now_ms - 90_061_000
    span = "[ 1 days, 1 hours, 1 minutes, 1 seconds ]"
    return {"bootTimestamp": str(began_ms), "runtime": span}


def test_a_brokers_time_is_its_start_and_how_long_it_runs() -> None:
    assert broker_now_ms(runtime(NOW_MS)) == NOW_MS
    assert broker_now_ms({}) is None
    assert broker_now_ms(runtime(NOW_MS) | {"runtime": "long"}) is None


def test_each_broker_is_asked_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    ahead_ms = {"right": 9_000, "ahead": 180_000, "behind": -3_600_000}
    asked = []

    def ask(broker: str) -> dict[str, str]:
        asked.append(broker)
        if broker == "closed":
            raise PermissionDenied("no")
        return runtime(NOW_MS + ahead_ms[broker]) if broker in ahead_ms else {}

    clocks = BrokerClocks(ask, lambda: NOW_MS)
    for _ in range(2):
        found = [clocks.ahead_ms(one) for one in ("right", "ahead", "behind", "closed", "silent")]
        assert found == [0, 180_000, -3_600_000, 0, 0]
    assert asked == ["right", "ahead", "behind", "closed", "silent"]
    assert [message.partition("; ")[0] for message in caplog.messages] == [
        "the clock of broker ahead is 180 s ahead",
        "the clock of broker behind is 3600 s behind",
        "the clock of broker closed is assumed to be right: no",
    ]
