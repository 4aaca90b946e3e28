"""How long a master waits for its disk."""

import pytest

from escrowmq.broker.replication.disk_patience import PATIENCE_MS, RETRY_MS, DiskPatience


def test_a_fault_that_lasts_is_given_up_after_a_while_and_again_later() -> None:
    patience = DiskPatience()
    over = [now for now in range(0, 70_000, 100) if patience.is_over("full", now)]
    first = PATIENCE_MS
    assert over == [first, first + RETRY_MS, first + 2 * RETRY_MS]


def test_each_fault_has_its_own_patience() -> None:
    patience = DiskPatience()
    assert not patience.is_over("full", 0)
    assert not patience.is_over("", PATIENCE_MS)
    assert not patience.is_over("full", PATIENCE_MS + 1)
    assert patience.is_over("full", 2 * PATIENCE_MS + 1)


def test_the_next_member_is_asked_without_a_pause() -> None:
    patience = DiskPatience()
    patience.is_over("full", 0)
    assert patience.is_over("full", PATIENCE_MS)
    patience.ask_next(PATIENCE_MS + 1)
    assert patience.is_over("full", PATIENCE_MS + 1)


def test_what_is_tried_again_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    patience = DiskPatience()
    for text in ("a is asked", "a is asked", "nobody can"):
        patience.log(text)
    patience.is_over("", 0)
    patience.log("nobody can")
    assert caplog.messages == ["a is asked", "nobody can", "nobody can"]
