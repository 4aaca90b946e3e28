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
from escrowmq.txn.end_claim import Claim, Ended, EndResult
from escrowmq.txn.half_lifecycle import Halves
from escrowmq.txn.state import WANTED, State

VERDICTS: Final = {int(verdict): verdict for verdict in WANTED}
"""The verdict for each value that an END may have; other values are invalid."""


def plain_verdict(said: int, *, is_from_check: bool) -> State | None:
    """Return the state that a half gets from a commit or rollback that its producer sends unasked.
    None for an answer to a check, or for an unknown verdict."""
    verdict = VERDICTS.get(said)
    return None if verdict is None or is_from_check else WANTED[verdict]


class EndAsked(NamedTuple):
    """The input of the rules: an END, and the state of its half."""

    claim: Claim
    standing: HalfStatus
    halves: Halves
    now_ms: int
    timeout_ms: int


class EndRule(NamedTuple):
    """A reason not to end a half, and the answer to its END."""

    name: str
    concerns: Callable[[EndAsked], bool]
    answer: Callable[[EndAsked], Ended]


def _members_count(about: EndAsked) -> int:
    return len(about.halves.bundles.members(about.standing.half.queue_offset))


def _tell_outcome(about: EndAsked) -> Ended:
    state, (queue_offset, half, _) = about.standing
    is_other = state != State.SETTLED and WANTED.get(about.claim.verdict, state) != state
    answer = EndResult.CONTRADICTED if is_other else EndResult.REPEATED
    return Ended(answer, state, queue_offset, half.properties.get(Property.REAL_TOPIC, ""))


def _is_too_late(about: EndAsked) -> bool:
    half = about.standing.half.message
    if about.claim.is_from_check or not half.properties.get(Property.CHECK_IMMUNITY_TIME):
        return False
    return is_past_immunity(half, about.now_ms, about.timeout_ms)


def _has_other_count(about: EndAsked) -> bool:
    return about.claim.count is not None and about.claim.count != _members_count(about)


def _refuse(result: EndResult) -> Callable[[EndAsked], Ended]:
    return lambda about: Ended(result, queue_offset=about.standing.half.queue_offset)


def _refuse_count(about: EndAsked) -> Ended:
    queue_offset, count = about.standing.half.queue_offset, _members_count(about)
    return Ended(EndResult.COUNT_WRONG, queue_offset=queue_offset, count=count)


END_RULES: Final = (
    EndRule("ended before", lambda about: about.standing.state != State.PENDING, _tell_outcome),
    EndRule(
        "of an epoch",
        lambda about: about.standing.half.queue_offset in about.halves.epochs.of,
        _refuse(EndResult.OF_EPOCH),
    ),
    EndRule("past its time without checks", _is_too_late, _refuse(EndResult.TOO_LATE)),
    EndRule("another number of messages", _has_other_count, _refuse_count),
)


def judged(about: EndAsked) -> Ended | None:
    """Return the answer to an END that is refused or repeats an earlier one; None if the END may be
    carried out."""
    for rule in END_RULES:
        if rule.concerns(about):
            return rule.answer(about)
    return None
