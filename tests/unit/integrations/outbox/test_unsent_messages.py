from __future__ import annotations

import pytest

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.client.core.message import Message
from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.integrations.outbox.unsent_messages import SAVEPOINTS_MAX, UnsentMessages


def said(unsent: UnsentMessages) -> bytes:
    return b"".join(message.body for message in unsent.messages)


def test_a_savepoint_takes_back_what_came_behind_it() -> None:
    unsent = UnsentMessages()
    for step in "a1bc2d":
        if step.isdigit():
            unsent.add_savepoint(step)
        else:
            unsent.add(Message("T", step.encode()))
    unsent.roll_back_to("2")
    assert said(unsent) == b"abc"
    unsent.add(Message("T", b"e"))
    unsent.roll_back_to("1")
    assert said(unsent) == b"a"
    unsent.roll_back_to("made before anything was sent")
    assert said(unsent) == b""


def test_a_message_that_is_changed_and_sent_again_is_two() -> None:
    unsent, message = UnsentMessages(), Message("T", b"1", keys=["a"])
    assert unsent.add(message).keys == ["a"]
    message.body = b"2"
    unsent.add(message)
    assert said(unsent) == b"12"


def test_bounds_are_told_when_they_are_met() -> None:
    unsent = UnsentMessages()
    with pytest.raises(InvalidMessage):
        unsent.add(Message("no such name!", b"x"))
    for _ in range(BUNDLE_MESSAGES_MAX):
        unsent.add(Message("T", b"x"))
    with pytest.raises(UsageError, match="put more into each"):
        unsent.add(Message("T", b"x"))
    for number in range(SAVEPOINTS_MAX):
        unsent.add_savepoint(str(number))
    with pytest.raises(UsageError, match="open savepoints"):
        unsent.add_savepoint("one more")


def test_released_savepoints_are_forgotten_with_those_inside_them() -> None:
    """A bulk import with a savepoint for each row met the bound at row 10,001."""
    unsent = UnsentMessages()
    for number in range(2 * SAVEPOINTS_MAX):
        unsent.add_savepoint("row")
        unsent.add_savepoint("inside")
        if number == 0:
            unsent.add(Message("T", b"x"))
        unsent.release_savepoint("row")
    unsent.release_savepoint("never made")
    unsent.add_savepoint("last")
    unsent.add(Message("T", b"y"))
    unsent.roll_back_to("last")
    assert [message.body for message in unsent.messages] == [b"x"]


def sent_between(unsent: UnsentMessages, steps: str) -> bytes:
    """Lower case sends a message; an upper case letter makes a savepoint, or, behind < and >, rolls
    it back and releases it."""
    verb = ""
    for step in steps:
        if step in "<>":
            verb = step
        elif step.islower():
            unsent.add(Message("T", step.encode()))
        elif verb:
            (unsent.roll_back_to_known if verb == "<" else unsent.release_savepoint)(step)
            verb = ""
        else:
            unsent.add_savepoint(step)
    return said(unsent)


def test_a_name_that_is_made_again_hides_the_older_one_until_its_release() -> None:
    """PostgreSQL's and SQLite's. A rollback to the older one removed all messages."""
    assert sent_between(UnsentMessages(), "aSbSc<S") == b"ab"
    assert sent_between(UnsentMessages(), "aSbSc>Sd<S") == b"a"
    assert sent_between(UnsentMessages(), "aSbSc<S<Sd") == b"abd"


def test_a_rollback_forgets_later_savepoints_with_their_names() -> None:
    assert sent_between(UnsentMessages(), "SaTb<Sc>T<S") == b""
    assert sent_between(UnsentMessages(), "TaSbT<Sc<T") == b""


def test_what_cannot_be_tracked_fails_the_commit_and_removes_nothing() -> None:
    unsent = UnsentMessages()
    unsent.roll_back_to_known("missed, with nothing to lose")
    unsent.check_tracked()
    assert sent_between(unsent, "aSb<X<S") == b"ab"
    for step in (unsent.check_tracked, lambda: unsent.add(Message("T", b"c"))):
        with pytest.raises(UsageError, match=r"the savepoint 'X' was rolled back.*tx\.savepoint"):
            step()
    is_empty = UnsentMessages()
    is_empty.lose_track("planted")
    is_empty.check_tracked()
