from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from escrowmq.delivery.queue_locks import LOCK_MS, LockOwner, QueueLocks

STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.booleans(), st.integers(0, 70_000)),
    max_size=30,
)


@given(STEPS)
def test_queue_has_one_owner_at_a_time(steps: list[tuple[str, int, bool, int]]) -> None:
    locks, now_ms = QueueLocks(), 0
    model: dict[int, tuple[str, int]] = {}
    for client, queue_id, locks_it, span_ms in steps:
        now_ms += span_ms
        owner, until_ms = model.get(queue_id, ("", 0))
        if locks_it:
            is_free = owner in ("", client) or until_ms <= now_ms
            assert locks.lock("G", LockOwner(client), "T", queue_id, now_ms) == is_free
            if is_free:
                model[queue_id] = (client, now_ms + LOCK_MS)
        else:
            locks.unlock("G", client, "T", queue_id)
            if owner == client:
                del model[queue_id]
        assert locks.holds_lock("G", now_ms) == any(u > now_ms for _, u in model.values())


def test_client_without_a_name_unlocks_nothing() -> None:
    locks = QueueLocks()
    locks.lock("G", LockOwner("a"), "T", 0, 0)
    locks.unlock("G", "", "T", 1)
    locks.unlock("none", "", "T", 1)
    assert not locks.lock("G", LockOwner("b"), "T", 0, 1)


def test_locks_are_bounded_and_those_that_are_over_make_room() -> None:
    locks = QueueLocks(count_max=2)
    assert locks.lock("G", LockOwner("a"), "T", 0, 0)
    assert locks.lock("H", LockOwner("a"), "T", 0, 1)
    assert not locks.lock("G", LockOwner("a"), "T", 1, 1)
    assert locks.lock("G", LockOwner("a"), "T", 0, 1), "what is held can be renewed"
    locks.unlock("H", "a", "T", 0)
    assert locks.lock("G", LockOwner("a"), "T", 1, 2)
    assert not locks.lock("G", LockOwner("a"), "T", 2, LOCK_MS)
    assert locks.lock("K", LockOwner("b"), "T", 0, LOCK_MS + 1_000)
    assert not locks.holds_lock("G", LOCK_MS + 1_000)


def test_a_clock_that_is_set_forward_ends_no_lock() -> None:
    locks = QueueLocks()
    assert locks.lock("G", LockOwner("a"), "T", 0, 0)
    locks.clock_leapt(86_400_000)
    assert not locks.lock("G", LockOwner("b"), "T", 0, 86_400_000 + LOCK_MS - 1)
    assert locks.lock("G", LockOwner("b"), "T", 0, 86_400_000 + LOCK_MS)


def test_an_account_has_a_share_of_all_locks() -> None:
    locks = QueueLocks(count_max=4, of_account_max=2)
    evil, good = LockOwner("a", "evil"), LockOwner("b", "good")
    assert [locks.lock("G", evil, "T", queue_id, 0) for queue_id in range(3)] == [True, True, False]
    assert [locks.lock("H", good, "T", queue_id, 0) for queue_id in range(3)] == [True, True, False]
    locks.unlock("G", "a", "T", 0)
    assert locks.lock("G", evil, "T", 2, 1)
    assert not locks.lock("G", evil, "T", 3, 1)
    # Another account of the same client takes them over, and what is over counts for nobody.
    assert locks.lock("G", LockOwner("a", "other"), "T", 2, 2)
    assert locks.lock("G", LockOwner("c", "last"), "T", 3, LOCK_MS + 1_000)
    assert [locks.lock("K", evil, "T", queue_id, LOCK_MS + 1_000) for queue_id in range(3)] == [
        True, True, False,
    ]  # fmt: skip


def test_clients_without_an_account_share_all_locks() -> None:
    locks = QueueLocks(count_max=4, of_account_max=2)
    assert all(locks.lock("G", LockOwner("a"), "T", queue_id, 0) for queue_id in range(4))
