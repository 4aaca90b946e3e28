"""Rules about requests: a rule recognises requests that are not plain, and may refuse them.

Rules are kept in lists (broker/sends/send_rules, half_rules, pull_rules). The general path refuses
requests by a list. The fast path passes each request that any rule of the list concerns to the
general path. So a rule is written once, and applies on both paths.
tests/unit/broker/rule_examples.py has an example that breaks each rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from escrowmq.base.answer import Refusal

A = TypeVar("A")


class Rule(NamedTuple, Generic[A]):
    """One rule: it recognises special requests, and may refuse them."""

    name: str
    """What the rule recognises: the way in which a request is special."""

    concerns: Callable[[A], bool]
    judge: Callable[[A], Refusal | None] | None = None
    """Returns why a request is refused; None when it is not. A rule without this function refuses
    nothing: it only keeps requests off the fast path."""

    def refusal(self, about: A) -> Refusal | None:
        """Return why this rule refuses a request; None when it does not."""
        return self.judge(about) if self.judge is not None and self.concerns(about) else None


def first_refusal(rules: Iterable[Rule[A]], about: A) -> Refusal | None:
    """Return the refusal by the first rule that refuses a request; None if none does."""
    for rule in rules:
        if rule.judge is not None and rule.concerns(about):
            refusal = rule.judge(about)
            if refusal is not None:
                return refusal
    return None


def is_plain(rules: Iterable[Rule[A]], about: A) -> bool:
    """Whether no rule concerns a request, so that the fast path may serve it."""
    return not any(rule.concerns(about) for rule in rules)
