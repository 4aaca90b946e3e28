from __future__ import annotations

import pytest

from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.state import Verdict

from .ground import Ground
from .test_pending_recovery import java_final, java_op, put_back


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


@pytest.mark.parametrize("half_offset", [0, 1])
@pytest.mark.parametrize("ended", ["not", "by a final", "by an older one", "by a record"])
def test_copies_before_the_newest_are_not_asked_about_after_a_kill_of_rocketmq(
    ground: Ground, ended: str, half_offset: int
) -> None:
    """It puts halves back at each check, and saves its progress later."""
    older = put_back(ground, ground.prepare(b"paid"), 1)
    if ended == "by an older one":  # END came between two checks, and its op record is lost
        java_final(ground, older)
    newest = put_back(ground, older, 2)
    twin = ground.prepare(b"another", UNIQ_KEY=older.properties["UNIQ_KEY"])
    if ended in ("by a final", "by a record"):
        java_final(ground, newest)
    if ended == "by a record":
        java_op(ground, b"2,")
    for _ in range(2):
        ground.reopen(half_offset=half_offset)
        wanted = [newest.queue_offset] if ended == "not" else []
        assert list(ground.engine.halves.pending) == [*wanted, twin.queue_offset]
    assert ground.end(older, Verdict.COMMIT).answer == (
        EndResult.DONE if ended == "not" else EndResult.REPEATED
    )
    assert ground.finals() == [b"paid"]
