from __future__ import annotations

from escrowmq.codec.properties import decode_properties
from escrowmq.txn.half_records import final_of
from escrowmq.txn.recent_halves import Recent
from escrowmq.txn.state import Verdict

from .ground import Ground, plain_half


def test_kept_half_is_the_stored_one_in_every_field() -> None:
    ground = Ground()
    half = ground.prepare(b"body", TAGS="a")
    kept = ground.engine.halves.recent.half(queue_offset=0, log_offset=half.log_offset)
    assert kept == half
    assert ground.engine.halves.recent.half(queue_offset=0, log_offset=half.log_offset + 1) is None


def test_settled_halves_are_not_kept() -> None:
    ground = Ground()
    half = ground.prepare()
    ground.end(half, Verdict.COMMIT)
    assert ground.engine.halves.recent.half(queue_offset=0, log_offset=half.log_offset) is None


def test_few_and_small_halves_are_kept() -> None:
    ground = Ground()
    ground.engine.halves.recent = Recent(halves_max=3)
    halves = [ground.prepare(b"%d" % n) for n in range(5)]
    halves.append(ground.prepare(bytes(4097)))
    kept = [
        ground.engine.halves.recent.half(queue_offset=half.queue_offset, log_offset=half.log_offset)
        for half in halves
    ]
    assert kept == [None, None, *halves[2:5], None]
    for half in halves:
        ground.end(half, Verdict.COMMIT)
    assert ground.finals() == [b"0", b"1", b"2", b"3", b"4", bytes(4097)]


def test_the_final_of_a_half_with_an_account_is_what_is_kept_without_its_mark() -> None:
    ground = Ground()
    half = ground.prepare(b"body", TAGS="a", escrowOwner="mark")
    kept = ground.engine.halves.recent.half(queue_offset=0, log_offset=half.log_offset)
    assert kept is not None
    final = final_of(kept)
    assert final is not None
    encoded = ground.engine.halves.recent.properties_of(final, 0)
    assert decode_properties(encoded or b"") == final.properties
    assert set(kept.properties) - set(final.properties) <= {"escrowOwner"}
    final.properties["TAGS"] = "b"
    if "escrowOwner" in kept.properties:
        assert ground.engine.halves.recent.properties_of(final, 0) is None


def test_of_many_that_are_kept_at_once_the_newest_small_ones_stay() -> None:
    at_once, one_by_one = Recent(halves_max=3), Recent(halves_max=3)
    sizes = (1, 1, 5_000, 1, 4_096, 1)
    halves = [plain_half(number, bytes(size)) for number, size in enumerate(sizes)]
    at_once.keep_all(halves[:1])
    at_once.keep_all(halves[1:])
    for half in halves:
        one_by_one.keep_plain(half)
    for half in halves:
        place = {"queue_offset": half.queue_offset, "log_offset": half.log_offset}
        assert at_once.plain(**place) == one_by_one.plain(**place)
    assert at_once.plain(queue_offset=3, log_offset=300) is halves[3]
