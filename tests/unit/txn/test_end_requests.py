from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message
from escrowmq.txn.carry_forward import Carrier
from escrowmq.txn.end_claim import EndResult
from escrowmq.txn.state import State, Verdict
from tests.harness.exchange import SMALL

from .ground import Ground

COMMIT, ROLLBACK, UNKNOWN = Verdict.COMMIT, Verdict.ROLLBACK, Verdict.UNKNOWN


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("second", [COMMIT, ROLLBACK, UNKNOWN])
@pytest.mark.parametrize("seals", [True, False])
def test_first_end_wins(ground: Ground, first: Verdict, second: Verdict, seals: bool) -> None:
    half = ground.prepare(b"paid")
    state = ground.end(half, first, seals=seals).state
    later = ground.end(half, second)
    assert later.state == state
    is_same = second in (first, UNKNOWN)
    assert later.answer == (EndResult.REPEATED if is_same else EndResult.CONTRADICTED)
    assert ground.finals() == ([b"paid"] if first == COMMIT else [])
    assert ground.ops() == [b"0,"]
    counters = ground.engine.halves.counters
    assert (counters.repeated, counters.contradicted) == (int(is_same), int(not is_same))


def test_refusals_change_nothing(ground: Ground) -> None:
    half = ground.prepare()
    plain = ground.store.put(
        Message(topic="T", body=b"x", properties={"PGROUP": "PG"}), ground.now_ms
    )
    cases = [
        (ground.end(half, COMMIT, log_offset=half.log_offset + 1), EndResult.NOT_FOUND),
        (ground.end(half, COMMIT, log_offset=-1), EndResult.NOT_FOUND),
        (
            ground.end(half, COMMIT, log_offset=plain.log_offset, queue_offset=0),
            EndResult.NOT_FOUND,
        ),
        (ground.end(half, COMMIT, queue_offset=1), EndResult.QUEUE_OFFSET_WRONG),
    ]
    assert [ended.answer for ended, _ in cases] == [answer for _, answer in cases]
    forged = msgspec.structs.replace(half, properties={"PGROUP": "Forged"})
    assert ground.end(forged, COMMIT).answer == EndResult.GROUP_WRONG
    assert ground.finals() == []
    assert ground.end(half, COMMIT).answer == EndResult.DONE


@pytest.mark.parametrize(
    ("wish", "age_ms", "answer"),
    [
        ("10", 10_000, EndResult.DONE),
        ("10", 10_001, EndResult.TOO_LATE),
        ("1", 6_000, EndResult.DONE),
        ("1", 6_001, EndResult.TOO_LATE),
        ("x", 6_001, EndResult.TOO_LATE),
        (None, 10**9, EndResult.DONE),
        ("", 10**9, EndResult.DONE),
    ],
)
def test_own_end_comes_too_late_after_the_immunity_or_the_time_out(
    ground: Ground, wish: str | None, age_ms: int, answer: EndResult
) -> None:
    properties = {} if wish is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": wish}
    half = ground.prepare(b"body", group="PG", origin="", **properties)
    ground.now_ms += age_ms
    assert ground.end(half, COMMIT).answer == answer


def test_clock_of_the_producer_decides_nothing() -> None:
    ground = Ground(BrokerSettings())
    half = ground.prepare(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    assert half.stored_ms == ground.now_ms
    skewed = msgspec.structs.replace(half, born_ms=half.born_ms - 86_400_000)
    assert ground.end(skewed, COMMIT).answer == EndResult.DONE


def test_an_end_by_the_first_place_finds_the_copy_that_waits_for_the_disk() -> None:
    """The copy of a half that was carried forward has no unit before it is durable: the end of
    whoever knows the first place alone was told to be repeated, and nothing was committed."""
    ground = Ground(store_settings=msgspec.structs.replace(SMALL, is_sync_flush=True))
    half = ground.prepare(b"x")
    ground.sync()
    Carrier(ground.engine, ground.checker, ground.store).carry(1 << 40, ground.now_ms)
    ground.engine.unsealed.seal(ground.now_ms)
    assert ground.end(half, COMMIT).answer is EndResult.DONE
    assert not len(ground.engine.halves.pending)
    repeated = ground.end(half, COMMIT)
    assert (repeated.answer, repeated.state) == (EndResult.REPEATED, State.COMMITTED)
