from __future__ import annotations

from typing import Any

import pytest

from escrowmq.client.core.message import Message
from escrowmq.client.core.validation import check_message
from escrowmq.errors import (
    InvalidMessage,
)


@pytest.mark.parametrize("fields", [{"tag": 5}, {"order_key": 7}, {"topic": ["T"]}])
def test_what_is_no_text_is_refused_before_it_is_sent(fields: dict[str, Any]) -> None:
    message = Message(**{"topic": "T", "body": b"x", **fields})
    with pytest.raises(InvalidMessage):
        check_message(message, body_size_max=10)


@pytest.mark.parametrize("keys", [["a", ""], ["a b"], ["a", 5], 5])
def test_what_is_no_key_is_refused_before_it_is_sent(keys: Any) -> None:
    with pytest.raises(InvalidMessage, match="key"):
        check_message(Message("T", b"x", keys=keys), body_size_max=10)
    check_message(Message("T", b"x", keys=["a", "b"]), body_size_max=10)


def test_what_is_no_message_is_refused() -> None:
    with pytest.raises(InvalidMessage, match=r"make one with escrowmq\.Message"):
        check_message(b"x", body_size_max=10)  # type: ignore[arg-type]


def test_a_delay_that_is_none_is_refused_before_it_is_sent() -> None:
    with pytest.raises(InvalidMessage):
        check_message(Message("T", b"x", delay_level=-1), body_size_max=10)
    with pytest.raises(InvalidMessage):
        check_message(Message("T", b"x", delay_level=1, deliver_at=5), body_size_max=10)
    check_message(Message("T", b"x", delay_level=1), body_size_max=10)
