from __future__ import annotations

import pytest

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.client.core.message import Message
from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.integrations.outbox.gathered import SAVEPOINTS_MAX, Gathered


def said(gathered: Gathered) -> bytes:
    return b"".join(message.body for message in gathered.messages)


def test_a_savepoint_takes_back_what_came_behind_it() -> None:
    gathered = Gathered()
    for step in "a1bc2d":
        if step.isdigit():
            gathered.savepoint(step)
        else:
            gathered.add(Message("T", step.encode()))
    gathered.rolled_back_to("2")
    assert said(gathered) == b"abc"
    gathered.add(Message("T", b"e"))
    gathered.rolled_back_to("1")
    assert said(gathered) == b"a"
    gathered.rolled_back_to("made before anything was sent")
    assert said(gathered) == b""


def test_bounds_are_told_when_they_are_met() -> None:
    gathered = Gathered()
    with pytest.raises(InvalidMessage):
        gathered.add(Message("no such name!", b"x"))
    for _ in range(BUNDLE_MESSAGES_MAX):
        gathered.add(Message("T", b"x"))
    with pytest.raises(UsageError, match="put more into each"):
        gathered.add(Message("T", b"x"))
    for number in range(SAVEPOINTS_MAX):
        gathered.savepoint(str(number))
    with pytest.raises(UsageError, match="savepoints at most"):
        gathered.savepoint("one more")
