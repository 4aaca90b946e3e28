"""Which senders wait for the disk; test_extensions.py has those that ask how safe a message is."""

from __future__ import annotations

import pytest

from escrowmq.broker.sends.wanted_answers import may_hold_unwaiting_send, wants_to_wait
from tests.unit.broker.both import PLAIN, send


@pytest.mark.parametrize(
    ("properties", "does_wait"),
    [({}, True), ({"WAIT": "true"}, True), ({"WAIT": ""}, True), ({"WAIT": "false"}, False)],
)
def test_a_sender_waits_for_the_disk_unless_it_says_no(
    properties: dict[str, str], *, does_wait: bool
) -> None:
    assert wants_to_wait(properties) is does_wait


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_sender_that_may_not_wait_is_seen_in_an_input(*, is_binary: bool) -> None:
    plain = send(is_binary=is_binary)
    odd = send({**PLAIN, "WAIT": "false"}, is_binary=is_binary)
    assert not may_hold_unwaiting_send(plain + plain)
    assert may_hold_unwaiting_send(plain + odd + plain)
