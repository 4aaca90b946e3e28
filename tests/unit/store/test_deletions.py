from __future__ import annotations

from escrowmq.store.deletions import DeletedTopics, Deletion


def deleted(*ends: int, confirmed: int = 0) -> DeletedTopics:
    """A topic that a group's master has deleted several times."""
    found = DeletedTopics()
    for end in ends:
        found.record_deletion("t", log_end=end, stored_ms=end, confirmed=confirmed)
    return found


def test_a_note_covers_what_was_there_before() -> None:
    found = deleted(100)
    assert found.covers("t", 99, 100)
    assert not found.covers("t", 100, 100)
    assert not found.covers("t", 99, 101)
    assert not found.covers("u", 99, 100)


def test_where_logs_part_tells_which_deletions_were_never_confirmed() -> None:
    found = deleted(100)
    assert found.has_own_after(100)
    assert not found.has_own_after(101)
    assert found.undo_own_after(101) == []
    assert found.undo_own_after(100) == ["t"]
    assert found.of_topic == {}


def test_what_the_master_has_deleted_is_not_our_own() -> None:
    found = DeletedTopics()
    found.record_deletion("t", log_end=100, stored_ms=100)
    assert not found.has_own_after(0)
    assert found.undo_own_after(0) == []


def test_the_last_confirmed_deletion_comes_back() -> None:
    """Of several others none was confirmed."""
    found = deleted(100)
    for end in (200, 300):
        found.record_deletion("t", log_end=end, stored_ms=end, confirmed=150)
    assert found.undo_own_after(200) == ["t"]
    assert found.of_topic == {"t": Deletion(100, 100)}


def test_a_deletion_at_the_confirmed_end_is_not_confirmed() -> None:
    """The record that would confirm it comes behind it."""
    found = deleted(100)
    found.record_deletion("t", log_end=200, stored_ms=200, confirmed=100)
    assert found.undo_own_after(100) == ["t"]
    assert found.of_topic == {}
