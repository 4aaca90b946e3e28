"""Answers that wait for disk or replicas, and for no longer than they may."""

from __future__ import annotations

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.codes import Response
from escrowmq.base.message import Message
from escrowmq.broker.answers.waiting_answers import WaitingAnswers
from escrowmq.store.log_ends import LogEnds
from escrowmq.testing.disk import SimDisk
from tests.unit.store.stores import SMALL, opened


class Note(msgspec.Struct):
    """Something that waits, and notes what becomes of it."""

    said: list[str]
    name: str
    log_end: int
    since_ms: int

    def send(self) -> None:
        self.said.append(f"{self.name} said")

    def send_timed_out(self, code: int) -> None:
        self.said.append(f"{self.name} late {code}")

    def refuse(self, refusal: Refusal) -> None:
        self.said.append(f"{self.name} refused")


def waiting_for_disk() -> tuple[WaitingAnswers, LogEnds, list[str]]:
    """Four answers, kept at 0, 10, 20 and 30 ms, whose records end at 100, 200, 300 and 400."""
    settings = msgspec.structs.replace(SMALL, is_sync_flush=True, sync_timeout_ms=5_000)
    store, _ = opened(SimDisk(), settings)
    store.put(Message(topic="t", body=b"x" * 500), 0)
    waiting, said = WaitingAnswers(store.ends), list[str]()
    for nth in range(4):
        waiting.hold(Note(said, str(nth), 100 * nth + 100, 10 * nth))
    return waiting, store.ends, said


def test_each_is_given_when_its_record_is_durable_or_late() -> None:
    waiting, ends, said = waiting_for_disk()
    ends.set_durable(199)
    waiting.send_ready()
    assert said == ["0 said"]
    assert waiting.wake_at_ms() == 5_010
    waiting.wake(5_009)
    assert said == ["0 said"]
    waiting.wake(5_020)
    code = int(Response.FLUSH_DISK_TIMEOUT)
    assert said == ["0 said", f"1 late {code}", f"2 late {code}"]
    waiting.refuse_all("no disk")
    assert said[3:] == ["3 refused"]


def test_a_timeout_that_is_made_shorter_holds_for_those_that_wait_already() -> None:
    waiting, ends, said = waiting_for_disk()
    ends._settings.sync_timeout_ms = 1_500
    assert waiting.wake_at_ms() == 1_500
    waiting.wake(1_510)
    assert [line[:6] for line in said] == ["0 late", "1 late"]


def test_an_answer_that_waits_for_both_is_given_after_the_later_one() -> None:
    waiting, ends, said = waiting_for_disk()
    ends.wait_for_copies(timeout_ms=3_000)
    ends.set_durable(400)
    waiting.send_ready()
    assert said == []
    ends.set_confirmed(200)
    waiting.send_ready()
    assert said == ["0 said", "1 said"]
    waiting.wake(3_020)
    assert said[2:] == [f"2 late {int(Response.FLUSH_SLAVE_TIMEOUT)}"]
