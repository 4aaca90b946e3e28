"""`make demo`: ten transactions settle."""

import subprocess
import sys
from pathlib import Path

import pytest

DEMO = Path(__file__).parents[2] / "examples" / "ten_transactions.py"


@pytest.mark.ours_alone
def test_ten_transactions_settle_three_ways() -> None:
    done = subprocess.run(
        [sys.executable, str(DEMO)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    rows = [line.split() for line in done.stdout.splitlines()[1:-1]]
    assert len(rows) == 10
    by_state = {state: [row[2:] for row in rows if row[1] == state] for _, state, *_ in rows}
    assert {state: len(found) for state, found in by_state.items()} == {
        "unknown": 4, "commit": 3, "rollback": 3,
    }  # fmt: skip
    assert all(asked != "-" and delivered != "-" for asked, delivered, *_ in by_state["unknown"])
    assert all(asked == "-" and delivered != "-" for asked, delivered, *_ in by_state["commit"])
    assert by_state["rollback"] == [["-", "-"]] * 3
