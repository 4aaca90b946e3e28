"""The newest decision of each streaming query and of each write of a table, bounded for each
producer group.

A forgotten decision lets a repeated batch become visible twice. So no group makes the decisions of
another one forgotten, and within a group those that nobody will ask about again are forgotten
first: those for no token, and those about writes without a name of their own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

import msgspec

from escrowmq.base.fixed_limits import (
    EPOCH_QUERIES_MAX,
    EPOCH_QUERIES_TOTAL_MAX,
    EPOCH_TOKENS_KEPT_MAX,
    EPOCH_UNNAMED_MAX,
)

UNNAMED: Final = re.compile("[0-9a-f]{32}")
"""The name that the sink generates for a write of a table without txnAppId (sink/options)."""


class StreamQuery(NamedTuple):
    """A streaming query with numbered batches, identified by its name and producer group."""

    group: str
    name: str


class LastDecision(msgspec.Struct, frozen=True):
    """The newest decision of a query."""

    batch: int
    tokens: dict[str, int]
    """The tokens that count, with the number of messages of each."""


class _GroupDecisions:
    """The decisions of one group, by query; in each table the oldest decision is first."""

    __slots__ = ("is_in_use", "named", "tokens_count", "transient")

    def __init__(self, is_in_use: Callable[[str], bool]) -> None:
        self.is_in_use = is_in_use
        self.named: dict[str, LastDecision] = {}
        self.transient: dict[str, LastDecision] = {}
        """Decisions that nobody will ask about after some minutes."""
        self.tokens_count = 0

    def __len__(self) -> int:
        return len(self.named) + len(self.transient)

    def get(self, name: str) -> LastDecision | None:
        found = self.named.get(name)
        return self.transient.get(name) if found is None else found

    def record(self, name: str, decision: LastDecision) -> None:
        """Record a decision. If there are too many, forget the oldest other ones."""
        self._remove(name)
        is_transient = not decision.tokens or bool(UNNAMED.fullmatch(name))
        table = self.transient if is_transient else self.named
        if len(table) >= (EPOCH_UNNAMED_MAX if is_transient else EPOCH_QUERIES_MAX):
            self._remove_first(table)
        tokens_max = EPOCH_TOKENS_KEPT_MAX - len(decision.tokens)
        while self.tokens_count > tokens_max and self.remove_oldest():
            pass
        table[name] = decision
        self.tokens_count += len(decision.tokens)

    def remove_oldest(self) -> bool:
        """Forget the oldest decision, a transient one if there is one. Return False if all are in
        use."""
        return self._remove_first(self.transient) or self._remove_first(self.named)

    def _remove_first(self, table: dict[str, LastDecision]) -> bool:
        name = next((name for name in table if not self.is_in_use(name)), None)
        if name is not None:
            self._remove(name)
        return name is not None

    def _remove(self, name: str) -> None:
        found = self.named.pop(name, None) or self.transient.pop(name, None)
        if found is not None:
            self.tokens_count -= len(found.tokens)


class Decisions:
    """The newest decision of each query of all groups. `is_in_use` says whether halves of a query
    are pending: its decision is not forgotten meanwhile."""

    def __init__(self, is_in_use: Callable[[StreamQuery], bool]) -> None:
        self._is_in_use = is_in_use
        self._groups: dict[str, _GroupDecisions] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def get(self, query: StreamQuery) -> LastDecision | None:
        """Return the newest decision of a query; None if there is none."""
        found = self._groups.get(query.group)
        return None if found is None else found.get(query.name)

    def record(self, query: StreamQuery, decision: LastDecision) -> None:
        """Record a decision. If a group has too many, its oldest ones are forgotten; if all groups
        together have too many, one of the group that has the most."""
        if self._count >= EPOCH_QUERIES_TOTAL_MAX:
            self._remove_one()
        group = self._groups.get(query.group)
        if group is None:
            group = _GroupDecisions(partial(_is_in_use, self._is_in_use, query.group))
            self._groups[query.group] = group
        before = len(group)
        group.record(query.name, decision)
        self._count += len(group) - before

    def _remove_one(self) -> None:
        name, most = max(self._groups.items(), key=lambda item: len(item[1]))
        self._count -= most.remove_oldest()
        if not most:
            del self._groups[name]

    def items(self) -> Iterator[tuple[StreamQuery, LastDecision]]:
        """Yield all queries with their decisions; those of a group in the order in which they must
        be recorded again."""
        for group, found in self._groups.items():
            for table in (found.transient, found.named):
                for name, decision in table.items():
                    yield StreamQuery(group, name), decision


def _is_in_use(is_in_use: Callable[[StreamQuery], bool], group: str, name: str) -> bool:
    return is_in_use(StreamQuery(group, name))
