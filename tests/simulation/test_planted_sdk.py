"""Bugs planted in the SDK's core on purpose: the simulator's clients run that core, and its judge
must find each. Each plant spoils a class for the time of its worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from tests.sim import sdk_consumer
from tests.sim.plan import draw
from tests.sim.stage import Violation
from tests.sim.world import World

from escrowmq.base.command import Command
from escrowmq.client.core.allocation import Strategy, allocate
from escrowmq.client.core.fetched_messages import FetchedMessages
from escrowmq.client.core.message import ReceivedMessage
from escrowmq.client.core.pulling import PullCursor, PullStep
from escrowmq.client.core.queue_choice import QueueChooser
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.send_attempts import SendAttempts
from escrowmq.client.core.sending import Outcome
from escrowmq.client.core.verdicts import KnownOutcomes, TransactionCourse

SEEDS = [seed for seed in range(200) if draw(seed).has_sdk]
"""Those worlds of a commit that have clients of this kind."""

Plant = Callable[[pytest.MonkeyPatch], None]


def retried_where_it_failed(patch: pytest.MonkeyPatch) -> None:
    """Every attempt goes to the queue of the first one, whoever is away there."""
    first: dict[int, MessageQueue] = {}

    def spoilt(
        self: SendAttempts,
        queues: Sequence[MessageQueue],
        chooser: QueueChooser,
        *,
        now_ms: float = 0,
    ) -> MessageQueue:
        if not self.broker_name:
            first[id(self)] = chooser.choose(queues, now_ms=now_ms)
        return self.record_target(first[id(self)])

    patch.setattr(SendAttempts, "choose_target", spoilt)


def tried_without_end(patch: pytest.MonkeyPatch) -> None:
    """Attempts are not counted: only the time bounds them."""
    report = SendAttempts.report_attempt

    def spoilt(self: SendAttempts, *given: object, **more: object) -> object:
        self._left = 1_000
        return report(self, *given, **more)  # type: ignore[arg-type]

    patch.setattr(SendAttempts, "report_attempt", spoilt)


def tried_beyond_its_time(patch: pytest.MonkeyPatch) -> None:
    """Each attempt has all of the message's time again."""
    patch.setattr(SendAttempts, "left_s", lambda self, now: 3.0)


def open_block_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """A check about a block that is open is answered with a rollback."""
    of = KnownOutcomes.outcome_of

    def spoilt(self: KnownOutcomes, properties: Mapping[str, str]) -> Outcome | None:
        found = of(self, properties)
        return Outcome.ROLLBACK if found is Outcome.UNKNOWN else found

    patch.setattr(KnownOutcomes, "outcome_of", spoilt)


def unheard_end_rolled_back(patch: pytest.MonkeyPatch) -> None:
    """A commit that the broker did not confirm is remembered as a rollback."""

    def spoilt(self: TransactionCourse, error: BaseException) -> None:
        self._verdicts.remember_outcome(self.key, Outcome.ROLLBACK)

    patch.setattr(TransactionCourse, "record_unconfirmed", spoilt)


def abandoned_half_committed(patch: pytest.MonkeyPatch) -> None:
    """What was given up, and may be stored all the same, is committed when the broker asks."""

    def spoilt(self: TransactionCourse) -> None:
        self.verdict = Outcome.COMMIT
        self._verdicts.remember_outcome(self.key, Outcome.COMMIT)

    patch.setattr(TransactionCourse, "mark_abandoned", spoilt)


def kept_before_it_was_handled(patch: pytest.MonkeyPatch) -> None:
    """The offset that is kept is that of the next pull."""
    patch.setattr(FetchedMessages, "commit_offset", property(lambda self: self.next_offset))


def kept_behind_a_hole(patch: pytest.MonkeyPatch) -> None:
    """The offset that is kept is behind the message that was handled last."""
    finish = FetchedMessages.mark_settled

    def spoilt(
        self: FetchedMessages[ReceivedMessage], queue_offset: int, *, generation: int
    ) -> bool:
        is_new = finish(self, queue_offset, generation=generation)
        self._heap = [queue_offset + 1]
        self._open[queue_offset + 1] = 0
        return is_new

    patch.setattr(FetchedMessages, "mark_settled", spoilt)


def read_past_one(patch: pytest.MonkeyPatch) -> None:
    """A reader goes on one offset behind the one that the broker names."""
    answered = PullCursor.apply_reply

    def spoilt(self: PullCursor[ReceivedMessage], reply: Command) -> tuple[PullStep, int]:
        step, next_offset = answered(self, reply)
        return step, next_offset + (step is PullStep.TAKE)

    patch.setattr(PullCursor, "apply_reply", spoilt)


def queue_of_nobody(patch: pytest.MonkeyPatch) -> None:
    """The last queue of a topic is no member's."""

    def spoilt(
        strategy: Strategy, queues: Sequence[MessageQueue], *, members: Sequence[str], me: str
    ) -> list[MessageQueue]:
        return [
            queue
            for queue in allocate(strategy, queues, members=members, me=me)
            if queue != queues[-1]
        ]

    patch.setattr(sdk_consumer, "allocate", spoilt)


FOUND_BY: dict[Plant, int] = {
    retried_where_it_failed: 1,
    tried_without_end: 5,
    tried_beyond_its_time: 25,
    open_block_rolled_back: 1,
    unheard_end_rolled_back: 53,
    abandoned_half_committed: 5,
    kept_before_it_was_handled: 1,
    kept_behind_a_hole: 1,
    read_past_one: 1,
    queue_of_nobody: 9,
}
"""The seed that found it when this was written. It is tried first: the others follow when a change
of the worlds has made it another."""


def finder(plant: Plant) -> tuple[int, str]:
    """The seed that finds a planted bug, and what its judge says; -1 when none does."""
    for seed in (FOUND_BY[plant], *SEEDS):
        with pytest.MonkeyPatch.context() as patch:
            plant(patch)
            try:
                World(seed).run()
            except Violation as violation:
                return seed, str(violation)
    return -1, ""


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_the_simulator_finds_a_bug_planted_in_the_sdk(plant: Plant) -> None:
    assert finder(plant)[0] >= 0
