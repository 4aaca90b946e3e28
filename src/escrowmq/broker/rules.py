"""What a rule is: something that makes a request more than a plain one, and perhaps refuses it.

Rules stand in lists (broker/sends/send_rules, half_rules, pull_rules). The general way asks a list
for its refusal. The fast path asks the same list whether anything is special; then the request goes
the general way. So a rule is written once, and a rule that is added to a list holds on both ways.
tests/unit/broker/rule_examples.py has an example that breaks each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from escrowmq.base.answer import Refusal

A = TypeVar("A")


class Rule(NamedTuple, Generic[A]):
    """One rule about requests of a kind."""

    name: str
    """What is special about a request that the rule concerns."""

    concerns: Callable[[A], bool]
    judge: Callable[[A], Refusal | None] | None = None
    """Why a request that it concerns is refused; None when it is not. A rule without a judge
    refuses nothing: the general way serves such requests by other means."""

    def refusal(self, about: A) -> Refusal | None:
        """Why a request is refused by this rule; None when it is not."""
        return self.judge(about) if self.judge is not None and self.concerns(about) else None


def refusal_of(rules: Iterable[Rule[A]], about: A) -> Refusal | None:
    """Why a request is refused: the first rule that refuses it decides."""
    for rule in rules:
        if rule.judge is not None and rule.concerns(about):
            refusal = rule.judge(about)
            if refusal is not None:
                return refusal
    return None


def is_plain(rules: Iterable[Rule[A]], about: A) -> bool:
    """Whether no rule concerns a request, so that the fast path may serve it."""
    return not any(rule.concerns(about) for rule in rules)
