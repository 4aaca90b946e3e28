from __future__ import annotations

from escrowmq.codec.properties import decode_properties
from escrowmq.txn.recent_halves import RecentHalves
from escrowmq.txn.state import Verdict

from .ground import Ground, plain_half


def test_kept_half_is_the_stored_one_in_every_field() -> None:
    ground = Ground()
    half = ground.prepare(b"body", TAGS="a")
    kept = ground.engine.halves.recent.find(queue_offset=0, log_offset=half.log_offset)
    assert kept is not None
    assert (kept.queue_offset, kept.message) == (0, half)
    assert decode_properties(kept.encoded or b"") == half.properties
    assert ground.engine.halves.recent.find(queue_offset=0, log_offset=half.log_offset + 1) is None


def test_settled_halves_are_not_kept() -> None:
    ground = Ground()
    half = ground.prepare()
    ground.end(half, Verdict.COMMIT)
    assert ground.engine.halves.recent.find(queue_offset=0, log_offset=half.log_offset) is None


def test_few_and_small_halves_are_kept() -> None:
    ground = Ground()
    ground.engine.halves.recent = RecentHalves(halves_max=3)
    halves = [ground.prepare(b"%d" % n) for n in range(5)]
    halves.append(ground.prepare(bytes(4096)))
    halves.append(ground.prepare(bytes(4097)))
    kept = [
        ground.engine.halves.recent.find(queue_offset=half.queue_offset, log_offset=half.log_offset)
        for half in halves
    ]
    messages = [None if half is None else half.message for half in kept]
    assert messages == [None, None, None, *halves[3:6], None]
    for half in halves:
        ground.end(half, Verdict.COMMIT)
    assert ground.finals() == [b"0", b"1", b"2", b"3", b"4", bytes(4096), bytes(4097)]


def test_of_many_that_are_kept_at_once_the_newest_small_ones_stay() -> None:
    at_once, one_by_one = RecentHalves(halves_max=3), RecentHalves(halves_max=3)
    sizes = (1, 1, 5_000, 1, 4_096, 1)
    halves = [plain_half(number, bytes(size)) for number, size in enumerate(sizes)]
    at_once.add_plain(halves[:1])
    at_once.add_plain(halves[1:])
    for half in halves:
        one_by_one.add_plain([half])
    for half in halves:
        place = {"queue_offset": half.queue_offset, "log_offset": half.log_offset}
        kept = at_once.find(**place)
        assert kept == one_by_one.find(**place)
        assert (kept is not None) == (half.queue_offset >= 3)
        assert kept is None or kept.message == half.message()


def test_a_plain_half_is_found_at_its_own_position_alone() -> None:
    recent, half = RecentHalves(), plain_half(3, b"b")
    recent.add_plain([half])
    for at in (-1, 1, 0):
        found = recent.find(queue_offset=3, log_offset=half.log_offset + at)
        assert (found is None) == (at != 0)
