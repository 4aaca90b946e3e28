"""Epochs: the numbered batches of a streaming query, each written by one or several attempts.

An attempt has a token, and its messages are halves. One decision per epoch says which tokens count:
their halves become visible, all others of the epoch are dropped. Such halves are never checked;
without a decision in time they are dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from escrowmq.base.message import Property
from escrowmq.base.own_properties import EPOCH, TOKEN, TRANSACTION
from escrowmq.errors import UsageError
from escrowmq.txn.decisions import Decisions, LastDecision, StreamQuery
from escrowmq.txn.state import Verdict

EPOCH_SIZE_MAX: Final = 255
TOKEN_SIZE_MAX: Final = 64
_EPOCH: Final = re.compile(r"(?P<query>.+)/(?P<batch>[0-9]{1,18})", re.DOTALL)


class EpochAttempt(NamedTuple):
    """One attempt to write a batch of a query, identified by its token."""

    query: StreamQuery
    batch: int
    token: str


def parse_epoch(group: str, text: str) -> tuple[StreamQuery, int]:
    """Return the query and batch number that an epoch's text names. Raises UsageError if the text
    is invalid."""
    found = _EPOCH.fullmatch(text) if len(text) <= EPOCH_SIZE_MAX else None
    if found is None:
        raise UsageError(
            f"{EPOCH} is {text[:64]!r}; <query>/<number of the batch>, at most "
            f"{EPOCH_SIZE_MAX} characters, is expected"
        )
    return StreamQuery(group, found["query"]), int(found["batch"])


def attempt_of(properties: dict[str, str]) -> EpochAttempt | None:
    """Return the attempt that a half belongs to; None if it has no epoch. Raises UsageError if its
    properties are invalid."""
    if EPOCH not in properties:
        return None
    query, batch = parse_epoch(properties.get(Property.PGROUP, ""), properties[EPOCH])
    token = properties.get(TOKEN, "")
    if not 0 < len(token) <= TOKEN_SIZE_MAX:
        raise UsageError(
            f"{TOKEN} has {len(token)} characters; a half of an epoch has 1 to {TOKEN_SIZE_MAX}"
        )
    if TRANSACTION in properties:
        raise UsageError(
            f"{EPOCH} and {TRANSACTION} are both on the message; only one of them is allowed"
        )
    return EpochAttempt(query, batch, token)


def stored_attempt(properties: dict[str, str]) -> EpochAttempt | None:
    """Return the attempt of a stored half; None also if its properties are invalid, because another
    broker may have stored them."""
    try:
        return attempt_of(properties)
    except UsageError:
        return None


class Epochs:
    """The pending halves of each attempt, and the decisions."""

    def __init__(self) -> None:
        self._halves: dict[EpochAttempt, dict[int, int]] = {}
        """By queue offset of each half: the queue offset under which it was first stored."""
        self.by_half: dict[int, EpochAttempt] = {}
        """By queue offset: the attempt of each pending half that has an epoch. Other code only
        reads it."""
        self._attempts: dict[StreamQuery, dict[EpochAttempt, None]] = {}
        self._lapsed: set[EpochAttempt] = set()
        self._abandoned: set[EpochAttempt] = set()
        self.decisions = Decisions(self._attempts.__contains__)

    # -- halves ------------------------------------------------------------------------------

    def refusal(self, attempt: EpochAttempt) -> str:
        """Return why no half can join an attempt; empty if one can."""
        decided = self.decisions.get(attempt.query)
        if decided is not None and attempt.batch <= decided.batch:
            return (
                f"batch {attempt.batch} of {attempt.query.name} is decided already "
                f"(the last one is {decided.batch}); messages written for it now would be dropped"
            )
        return ""

    def add(self, attempt: EpochAttempt, queue_offset: int, number: int | None = None) -> None:
        """Add a pending half to its attempt. `number` is the queue offset of the original, if the
        half is a copy."""
        assert queue_offset not in self.by_half, queue_offset
        number = queue_offset if number is None else number
        self._halves.setdefault(attempt, {})[queue_offset] = number
        self.by_half[queue_offset] = attempt
        self._attempts.setdefault(attempt.query, {})[attempt] = None

    def remove(self, queue_offset: int) -> None:
        """Remove a half that is no longer pending."""
        attempt = self.by_half.pop(queue_offset, None)
        if attempt is None:
            return
        halves = self._halves[attempt]
        del halves[queue_offset]
        if halves:
            return
        del self._halves[attempt]
        self._lapsed.discard(attempt)
        self._abandoned.discard(attempt)
        attempts = self._attempts[attempt.query]
        del attempts[attempt]
        if not attempts:
            del self._attempts[attempt.query]

    def halves(self, attempt: EpochAttempt) -> list[int]:
        """The pending halves of an attempt, in the order in which they were first stored."""
        numbers = self._halves.get(attempt, {})
        return sorted(numbers, key=numbers.__getitem__)

    def number_of(self, queue_offset: int) -> int:
        """Return the queue offset under which a pending half was first stored."""
        return self._halves[self.by_half[queue_offset]][queue_offset]

    def halves_count(self, attempt: EpochAttempt) -> int:
        """Return the number of pending halves of an attempt."""
        return len(self._halves.get(attempt, ()))

    def attempts(self, query: StreamQuery) -> list[EpochAttempt]:
        """Return the attempts of a query that have pending halves."""
        return list(self._attempts.get(query, ()))

    def queries(self) -> list[StreamQuery]:
        """Return the queries that have pending halves."""
        return list(self._attempts)

    def mark_expired(self, attempt: EpochAttempt) -> bool:
        """Note that no decision came in time for an attempt. Return whether this was not known
        before."""
        is_news = attempt not in self._lapsed
        self._lapsed.add(attempt)
        return is_news

    def abandon(self, attempt: EpochAttempt) -> None:
        """Give an attempt the verdict rollback. This is not stored: after a crash, the timeout
        drops its halves."""
        if attempt in self._halves:
            self._abandoned.add(attempt)

    # -- decisions ---------------------------------------------------------------------------

    def decision(self, query: StreamQuery, batch: int) -> LastDecision | None:
        """Return the decision for a batch; None if there is none. For a batch before the newest
        decided one, the tokens are unknown and empty."""
        last = self.decisions.get(query)
        if last is None or batch > last.batch:
            return None
        return last if batch == last.batch else LastDecision(batch, {})

    def verdict(self, attempt: EpochAttempt) -> Verdict | None:
        """Return the verdict on an attempt's halves; None while it is open."""
        decision = self.decision(attempt.query, attempt.batch)
        if decision is None:
            return Verdict.ROLLBACK if attempt in self._abandoned else None
        return Verdict.COMMIT if attempt.token in decision.tokens else Verdict.ROLLBACK

    def settled_by_decision(self) -> Iterator[tuple[EpochAttempt, Verdict]]:
        """Yield attempts with pending halves that have a verdict."""
        for attempt in list(self._halves):
            verdict = self.verdict(attempt)
            if verdict is not None:
                yield attempt, verdict
