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
            unsent.savepoint(step)
        else:
            unsent.add(Message("T", step.encode()))
    unsent.rolled_back_to("2")
    assert said(unsent) == b"abc"
    unsent.add(Message("T", b"e"))
    unsent.rolled_back_to("1")
    assert said(unsent) == b"a"
    unsent.rolled_back_to("made before anything was sent")
    assert said(unsent) == b""


def test_bounds_are_told_when_they_are_met() -> None:
    unsent = UnsentMessages()
    with pytest.raises(InvalidMessage):
        unsent.add(Message("no such name!", b"x"))
    for _ in range(BUNDLE_MESSAGES_MAX):
        unsent.add(Message("T", b"x"))
    with pytest.raises(UsageError, match="put more into each"):
        unsent.add(Message("T", b"x"))
    for number in range(SAVEPOINTS_MAX):
        unsent.savepoint(str(number))
    with pytest.raises(UsageError, match="open savepoints"):
        unsent.savepoint("one more")


def test_released_savepoints_are_forgotten_with_those_inside_them() -> None:
    """A bulk import with a savepoint for each row met the bound at row 10,001."""
    unsent = UnsentMessages()
    for number in range(2 * SAVEPOINTS_MAX):
        unsent.savepoint("row")
        unsent.savepoint("inside")
        if number == 0:
            unsent.add(Message("T", b"x"))
        unsent.released("row")
    unsent.released("never made")
    unsent.savepoint("last")
    unsent.add(Message("T", b"y"))
    unsent.rolled_back_to("last")
    assert [message.body for message in unsent.messages] == [b"x"]
