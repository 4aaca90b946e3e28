"""Answers to what the fast path has stored leave before what follows from it is done, where they
are all that an input wants."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Flag
from escrowmq.codec.frame import FrameReader
from tests.unit.broker.both import Begun, Side, begun_of, end, half, send

PLAIN = {"UNIQ_KEY": "0A000001ABCD18B4AAC2000000000001"}


class Prompt:
    """A broker that was shown a half and a message before, and what it lets leave."""

    def __init__(self, *, is_sync_flush: bool = False) -> None:
        self.side = Side(is_fast=True, is_sync_flush=is_sync_flush)
        for number in range(8):
            self.side.feed((1, half(number)))
            self.side.feed((1, send(PLAIN, b"x")))
            (begun,) = begun_of(self.side.heard[-2][1])
            self.side.feed((1, end(begun)))
            self.side.heard.clear()
        self.left: list[tuple[int, int, int]] = []
        """Of each time: bytes for peers, pending halves, and where the log ends."""
        self.side.core.set_writer(self._note)

    @property
    def state(self) -> tuple[int, int]:
        """Pending halves, and where the log ends."""
        core = self.side.core
        return len(core.transactions.engine.halves.pending), core.broker.store.end_offset

    def _note(self, peer: int, chunks: list[bytes]) -> None:
        data = b"".join(chunks)
        self.side.heard.append((peer, data))
        self.left.append((len(data), *self.state))

    def feed(self, data: bytes) -> int:
        """An input; how many answers there were, and in how many writes."""
        self.side.heard.clear()
        self.side.feed((1, data))
        return len(self.side.heard)


def test_a_half_is_answered_once_it_is_in_the_log_and_is_pending_afterwards() -> None:
    prompt = Prompt()
    pending, log_end = prompt.state
    assert prompt.feed(half(20)) == 1
    ((size, then_pending, then_end),) = prompt.left
    assert size > 0
    assert then_end > log_end
    assert (then_pending, prompt.state) == (pending, (pending + 1, then_end))
    (begun,) = begun_of(prompt.side.heard[0][1])
    prompt.feed(end(begun, flag=2))
    assert prompt.state[0] == pending


def test_an_end_and_the_next_half_are_one_write_of_the_log_and_one_answer() -> None:
    prompt = Prompt()
    prompt.feed(half(20))
    (begun,) = begun_of(prompt.side.heard[0][1])
    before, _ = prompt.state
    prompt.left.clear()
    assert prompt.feed(end(begun, flag=2) + half(21)) == 1
    assert [(size > 0, pending) for size, pending, _ in prompt.left] == [(True, before)]
    assert prompt.state[0] == before


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("is_half", [True, False])
def test_who_waits_for_an_answer_waits_for_no_end_behind_it(
    *, is_half: bool, is_binary: bool
) -> None:
    prompt = Prompt()
    prompt.feed(half(20))
    (begun,) = begun_of(prompt.side.heard[0][1])
    pending, log_end = prompt.state
    prompt.left.clear()
    asked = half(21) if is_half else send(PLAIN, b"x")
    assert prompt.feed(asked + end(begun, is_binary=is_binary)) == 1
    ((_, then_pending, then_end),) = prompt.left
    assert (then_pending, then_end > log_end) == (pending, True)
    assert prompt.state[0] == pending - 1 + is_half
    assert prompt.state[1] > then_end, "the END's records are behind it"


@pytest.mark.parametrize("is_binary", [True, False])
def test_an_end_that_is_answered_has_its_answer_behind_what_was_asked_before(
    *, is_binary: bool
) -> None:
    prompt = Prompt()
    prompt.feed(half(20))
    (begun,) = begun_of(prompt.side.heard[0][1])
    assert prompt.feed(half(21) + end(begun, flag=0, is_binary=is_binary)) == 2
    first, second = (FrameReader().read_commands(data) for _, data in prompt.side.heard)
    assert [reply.opaque for reply in first + second] == [7, 3]


def test_an_end_of_nothing_keeps_nobody_before_it_waiting() -> None:
    prompt = Prompt()
    pending, _ = prompt.state
    assert prompt.feed(half(20) + end(Begun(10_000, 1 << 40, "x"))) == 1
    assert len(prompt.left) == 1
    assert prompt.state[0] == pending + 1


def test_answers_of_an_input_that_has_more_leave_together() -> None:
    prompt = Prompt()
    other = send({**PLAIN, "TAGS": "a", "DELAY": "1"}, b"x")
    assert prompt.feed(half(20) + other) == 1
    assert not prompt.left


@pytest.mark.parametrize("is_sync_flush", [False, True])
def test_who_waits_for_the_disk_or_for_nothing_has_nothing_leave_early(
    *, is_sync_flush: bool
) -> None:
    prompt = Prompt(is_sync_flush=is_sync_flush)
    prompt.feed(half(20) if is_sync_flush else send(PLAIN, b"x", flag=Flag.ONE_WAY))
    assert not prompt.left
