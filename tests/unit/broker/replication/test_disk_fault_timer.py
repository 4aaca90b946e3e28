"""How long a master waits for its disk."""

import pytest

from escrowmq.broker.replication.disk_fault_timer import PATIENCE_MS, RETRY_MS, DiskFaultTimer


def test_a_fault_that_lasts_is_given_up_after_a_while_and_again_later() -> None:
    patience = DiskFaultTimer()
    over = [now for now in range(0, 70_000, 100) if patience.must_hand_over("full", now)]
    first = PATIENCE_MS
    assert over == [first, first + RETRY_MS, first + 2 * RETRY_MS]


def test_each_fault_has_its_own_patience() -> None:
    patience = DiskFaultTimer()
    assert not patience.must_hand_over("full", 0)
    assert not patience.must_hand_over("", PATIENCE_MS)
    assert not patience.must_hand_over("full", PATIENCE_MS + 1)
    assert patience.must_hand_over("full", 2 * PATIENCE_MS + 1)


def test_the_next_member_is_asked_without_a_pause() -> None:
    patience = DiskFaultTimer()
    patience.must_hand_over("full", 0)
    assert patience.must_hand_over("full", PATIENCE_MS)
    patience.allow_next_request(PATIENCE_MS + 1)
    assert patience.must_hand_over("full", PATIENCE_MS + 1)


def test_what_is_tried_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    patience = DiskFaultTimer()
    for text in ("a is asked", "a is asked", "nobody can"):
        patience.log_once(text)
    patience.must_hand_over("", 0)
    patience.log_once("nobody can")
    assert caplog.messages == ["a is asked", "nobody can", "nobody can"]
