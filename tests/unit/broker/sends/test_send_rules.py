"""Small rules about sends that stand by themselves; `test_rules.py` breaks those of the lists."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Response
from escrowmq.broker.sends.send_rules import missing_key_refusal


@pytest.mark.parametrize("properties", [{}, {"KEYS": ""}])
def test_a_message_without_a_key_is_refused(properties: dict[str, str]) -> None:
    refusal = missing_key_refusal(properties)
    assert refusal is not None
    assert refusal.code == Response.MESSAGE_ILLEGAL


def test_one_with_a_key_is_not() -> None:
    assert missing_key_refusal({"KEYS": "k"}) is None
