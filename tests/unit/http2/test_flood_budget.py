from __future__ import annotations

import pytest

from escrowmq.http2.flood_budget import FloodBudget
from escrowmq.http2.frames import ConnectionFault


def test_allowance_grows_with_time() -> None:
    allowance = FloodBudget("pings", most=2, per_s=10)
    for now_ms in (0, 0, 200, 200):
        allowance.spend_budget(now_ms)
    with pytest.raises(ConnectionFault, match="too many pings: 2 at once and 10 a second"):
        allowance.spend_budget(299)


def test_what_costs_more_counts_more() -> None:
    allowance = FloodBudget("pings", most=10, per_s=10)
    allowance.spend_budget(0, 7)
    with pytest.raises(ConnectionFault, match="too many pings"):
        allowance.spend_budget(0, 4)


def test_allowance_grows_with_work_up_to_its_most() -> None:
    allowance = FloodBudget("pings", most=2, per_s=10)
    allowance.spend_budget(0)
    allowance.add_budget(100)
    allowance.spend_budget(0)
    allowance.spend_budget(0)
    with pytest.raises(ConnectionFault):
        allowance.spend_budget(0)
