"""Small rules about sends that stand by themselves; `test_rules.py` breaks those of the lists."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Response
from escrowmq.broker.sends.send_rules import key_missing, may_not_wait, waits
from escrowmq.delivery.topics import TopicConfig
from tests.unit.broker.both import PLAIN, send


@pytest.mark.parametrize(
    ("properties", "does_wait"),
    [({}, True), ({"WAIT": "true"}, True), ({"WAIT": ""}, True), ({"WAIT": "false"}, False)],
)
def test_a_sender_waits_for_the_disk_unless_it_says_no(
    properties: dict[str, str], *, does_wait: bool
) -> None:
    assert waits(properties) is does_wait


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_sender_that_may_not_wait_is_seen_in_an_input(*, is_binary: bool) -> None:
    plain = send(is_binary=is_binary)
    odd = send({**PLAIN, "WAIT": "false"}, is_binary=is_binary)
    assert not may_not_wait(plain + plain)
    assert may_not_wait(plain + odd + plain)


def test_a_compacted_topic_alone_wants_a_key() -> None:
    compacted = TopicConfig(topic_name="T", attributes={"cleanup.policy": "COMPACTION"})
    for properties in ({}, {"KEYS": ""}):
        refusal = key_missing(compacted, properties)
        assert refusal is not None
        assert refusal.code == Response.MESSAGE_ILLEGAL
        assert key_missing(TopicConfig(topic_name="T"), properties) is None
    assert key_missing(compacted, {"KEYS": "k"}) is None
