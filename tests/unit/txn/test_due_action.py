"""What becomes of a pending transaction that is due."""

from __future__ import annotations

import pytest

from escrowmq.txn.due_action import DueAction, choose_action


@pytest.mark.parametrize(
    ("checks", "age_ms", "is_reachable", "fate"),
    [
        (0, 0, True, DueAction.ASK),
        (14, 100, True, DueAction.ASK),
        (15, 0, True, DueAction.EXPIRE),
        (0, 101, True, DueAction.EXPIRE),
        (0, 0, False, DueAction.PARK),
        (15, 0, False, DueAction.EXPIRE),
    ],
)
def test_fate_of_a_transaction_that_is_due(
    checks: int, age_ms: int, is_reachable: bool, fate: DueAction
) -> None:
    found = choose_action(
        checks=checks, checks_max=15, age_ms=age_ms, age_max_ms=100, is_reachable=is_reachable
    )
    assert found == fate
