"""A rule is something that makes a request more than a plain one, and may refuse it.

Rules are kept in lists (broker/sends/send_rules, half_rules, pull_rules). The general path checks a
list for a refusal. The fast path checks the same list for anything special; such a request takes
the general path. So a rule is written once, and a rule added to a list applies on both paths.
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
    """Why a request that it concerns is refused; None when it is not. A rule without this refuses
    nothing: the general path serves such requests in another way."""

    def refusal(self, about: A) -> Refusal | None:
        """Why a request is refused by this rule; None when it is not."""
        return self.judge(about) if self.judge is not None and self.concerns(about) else None


def refusal_of(rules: Iterable[Rule[A]], about: A) -> Refusal | None:
    """Why a request is refused: by the first rule that refuses it."""
    for rule in rules:
        if rule.judge is not None and rule.concerns(about):
            refusal = rule.judge(about)
            if refusal is not None:
                return refusal
    return None


def is_plain(rules: Iterable[Rule[A]], about: A) -> bool:
    """Whether no rule concerns a request, so that the fast path may serve it."""
    return not any(rule.concerns(about) for rule in rules)
