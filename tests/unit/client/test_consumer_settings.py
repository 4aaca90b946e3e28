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
