from __future__ import annotations

from typing import Any

import pytest

from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.errors import (
    UsageError,
)


@pytest.mark.parametrize(
    "settings", [{"topic": "T", "tags": ["a"]}, {"topic": "T", "sql": 5}, {"queues": ["q"]}]
)
def test_what_a_consumer_cannot_read_is_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="is expected"):
        ConsumerOptions(**settings)


@pytest.mark.parametrize("count", [-1, 2**31, "16"])
def test_a_number_of_attempts_that_no_broker_understands_is_refused(count: Any) -> None:
    """RocketMQ's -1, which means its default there, made every failure a dead letter; a number of
    more than 32 bits was refused by each broker, so that failed messages came again for ever."""
    with pytest.raises(UsageError, match=r"attempts_max=.* from 0 to 2147483647 is expected"):
        ConsumerOptions(topic="T", attempts_max=count)
