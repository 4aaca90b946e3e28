"""One pass through the kept messages: decides which of them are sent next.

They are sent in order, many in one transaction. If a transaction fails, its bundles are tried one
by one; a bundle that fails again blocks its own topics, and no others, until the next pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.errors import NoNameServer
from escrowmq.integrations.outbox import kept
from escrowmq.integrations.outbox.kept import KeptMessage
from escrowmq.integrations.outbox.steps import StepFailed
from escrowmq.integrations.outbox.tables import SqlFamily, Statement

FAILING_MAX_S: Final = 10.0
"""How long a pass keeps failing before it ends: a silent broker costs a timeout each time."""


class KeptWalk:
    """Run `query`, pass its rows to `choose`, send what that returns, and report the result by
    `handed_over` or `failed`; repeat until `is_over`."""

    def __init__(self, family: SqlFamily) -> None:
        self.is_over = False
        self.count = 0
        """Messages that were sent."""
        self.error: Exception | None = None
        """The first failure."""
        self._family = family
        self._after = 0
        self._bundle = ""
        self._is_one_by_one = False
        self._blocked: set[str] = set()
        self._failing_s = 0.0

    def query(self) -> Statement:
        """The statement for the next rows."""
        if self._bundle:
            return kept.page(self._family, after=self._after, bundle=self._bundle)
        return kept.page(self._family, after=self._after, without=self._blocked)

    def choose(self, rows: Sequence[KeptMessage]) -> list[KeptMessage]:
        """The rows to send in one transaction; perhaps none, and another query follows."""
        bundles = kept.bundles_of(rows)
        if self._bundle:
            self._bundle = ""
            if bundles and self._blocked.isdisjoint(row.message.topic for row in rows):
                return bundles[0]
            self._after = rows[0].position if rows else self._after
            return []
        if not rows:
            self.is_over = True
            return []
        if not bundles:
            self._bundle = rows[0].bundle  # there are more after this page
            return []
        some = bundles[:1] if self._is_one_by_one else kept.first_fit(bundles)
        return [row for bundle in some for row in bundle]

    def handed_over(self, chosen: Sequence[KeptMessage]) -> None:
        """They were sent, and their rows are deleted."""
        self.count += len(chosen)

    def failed(self, chosen: Sequence[KeptMessage], error: Exception, *, took_s: float) -> None:
        """They were not sent, and their rows remain."""
        self.error = self.error or error
        self._failing_s += took_s
        is_hopeless = isinstance(error, StepFailed | NoNameServer) or not chosen
        if is_hopeless or self._failing_s > FAILING_MAX_S:
            self.is_over = True
        elif len({row.bundle for row in chosen}) > 1:
            self._is_one_by_one = True
        else:
            self._blocked.update(row.message.topic for row in chosen)
