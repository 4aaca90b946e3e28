"""Answers that wait for the disk, and for no longer than they may."""

from __future__ import annotations

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.broker.unsynced_answers import WaitingAnswers


class Note(msgspec.Struct):
    """Something that waits, and notes what becomes of it."""

    said: list[str]
    name: str
    log_end: int
    deadline_ms: int

    def say(self) -> None:
        self.said.append(f"{self.name} said")

    def say_late(self) -> None:
        self.said.append(f"{self.name} late")

    def refuse(self, refusal: Refusal) -> None:
        self.said.append(f"{self.name} refused")


def test_a_span_that_was_made_shorter_holds_behind_an_answer_that_has_the_longer_one() -> None:
    said: list[str] = []
    waiting = WaitingAnswers()
    for nth, deadline_ms in enumerate((5_000, 5_010, 1_500, 1_600)):
        waiting.keep(Note(said, str(nth), 100 * nth + 100, deadline_ms))
    waiting.synced(100)
    assert waiting.wake_at_ms() == 1_500
    waiting.wake(1_500)
    assert said == ["0 said", "1 late", "2 late"]
    assert waiting.wake_at_ms() == 1_600
