"""The rules about ENDs: which verdicts settle a half, and why an END is refused.

`EndRequests` finds the half, then evaluates END_RULES in order; the first rule that applies
decides.

The fast path (broker/fast/fast_ends) evaluates no rules, because it serves only plain halves:
those of no epoch and no bundle, without check immunity, that are pending under their own number. No
rule concerns such a half. broker/sends/send_rules decides by a half's properties whether it is
plain.

Add new rules here, and their examples to tests/unit/broker/rule_examples.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from escrowmq.base.message import Property
from escrowmq.txn.check_immunity import is_past_immunity
from escrowmq.txn.doubled_halves import HalfStatus
from escrowmq.txn.end_claim import Claim, EndReply, EndResult
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.state import WANTED, State, state_after

VERDICTS: Final = {int(verdict): verdict for verdict in WANTED}
"""The verdict for each value that an END may have; other values are invalid."""


def plain_end_state(said: int, *, is_from_check: bool) -> State | None:
    """Return the state that a half gets from a commit or rollback that its producer sends unasked.
    None for an answer to a check, or for an unknown verdict."""
    verdict = VERDICTS.get(said)
    return None if verdict is None or is_from_check else WANTED[verdict]


class EndContext(NamedTuple):
    """The input of the rules: an END, and the state of its half."""

    claim: Claim
    status: HalfStatus
    halves: Halves
    now_ms: int
    timeout_ms: int


class EndRule(NamedTuple):
    """A reason not to end a half, and the answer to its END."""

    name: str
    concerns: Callable[[EndContext], bool]
    answer: Callable[[EndContext], EndReply]


def _messages_count(about: EndContext) -> int:
    return len(about.halves.bundles.members(about.status.half.queue_offset))


def _answer_outcome(about: EndContext) -> EndReply:
    state, (queue_offset, half, _) = about.status
    is_other = state != State.SETTLED and WANTED.get(about.claim.verdict, state) != state
    answer = EndResult.CONTRADICTED if is_other else EndResult.REPEATED
    return EndReply(answer, state, queue_offset, half.properties.get(Property.REAL_TOPIC, ""))


def _partial_state(about: EndContext) -> State | None:
    """Return the state that a half's transaction gets, if some of its messages have ended so
    already."""
    verdict = about.halves.partly_ended.get(about.status.half.queue_offset)
    return None if verdict is None else state_after(State.PENDING, verdict)


def _contradicts_ended_part(about: EndContext) -> bool:
    state = _partial_state(about)
    return state is not None and WANTED.get(about.claim.verdict, state) != state


def _answer_ended_part(about: EndContext) -> EndReply:
    state = _partial_state(about)
    assert state is not None
    return _answer_outcome(about._replace(status=about.status._replace(state=state)))


def _is_too_late(about: EndContext) -> bool:
    half = about.status.half.message
    if about.claim.is_from_check or not half.properties.get(Property.CHECK_IMMUNITY_TIME):
        return False
    return is_past_immunity(half, about.now_ms, about.timeout_ms)


def _has_other_count(about: EndContext) -> bool:
    if _partial_state(about) is not None:
        return False  # fewer are left
    return about.claim.count is not None and about.claim.count != _messages_count(about)


def _refusal_with(result: EndResult) -> Callable[[EndContext], EndReply]:
    return lambda about: EndReply(result, queue_offset=about.status.half.queue_offset)


def _refuse_count(about: EndContext) -> EndReply:
    queue_offset, count = about.status.half.queue_offset, _messages_count(about)
    return EndReply(EndResult.COUNT_WRONG, queue_offset=queue_offset, count=count)


END_RULES: Final = (
    EndRule("ended before", lambda about: about.status.state != State.PENDING, _answer_outcome),
    EndRule("ended in part", _contradicts_ended_part, _answer_ended_part),
    EndRule(
        "of an epoch",
        lambda about: about.status.half.queue_offset in about.halves.epochs.by_half,
        _refusal_with(EndResult.OF_EPOCH),
    ),
    EndRule("past its time without checks", _is_too_late, _refusal_with(EndResult.TOO_LATE)),
    EndRule("another number of messages", _has_other_count, _refuse_count),
)


def apply_rules(about: EndContext) -> EndReply | None:
    """Return the answer to an END that is refused or repeats an earlier one; None if the END may be
    carried out."""
    for rule in END_RULES:
        if rule.concerns(about):
            return rule.answer(about)
    return None
