"""One pass through the messages that are kept: which of them are handed over next.

They go in order, many in one transaction. When a transaction fails, its bundles are tried one by
one; a bundle that fails again holds up its own topics, and no others, until the next pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.errors import NoNameServer
from escrowmq.integrations.outbox import kept
from escrowmq.integrations.outbox.kept import KeptMessage
from escrowmq.integrations.outbox.steps import StepFailed
from escrowmq.integrations.outbox.tables import SqlFamily, Statement

FAILING_MAX_S: Final = 10.0
"""How long a pass goes on trying in vain: a broker that says nothing takes its time each time."""


class KeptWalk:
    """Ask for `query`, give its rows to `choose`, hand over what that returns, and say how it went
    with `handed_over` or `failed`; until `is_over`."""

    def __init__(self, family: SqlFamily) -> None:
        self.is_over = False
        self.count = 0
        """Messages that were handed over."""
        self.error: Exception | None = None
        """The first failure."""
        self._family = family
        self._after = 0
        self._bundle = ""
        self._is_one_by_one = False
        self._blocked: set[str] = set()
        self._failing_s = 0.0

    def query(self) -> Statement:
        """The rows to look at next."""
        if self._bundle:
            return kept.page(self._family, after=self._after, bundle=self._bundle)
        return kept.page(self._family, after=self._after, without=self._blocked)

    def choose(self, rows: Sequence[KeptMessage]) -> list[KeptMessage]:
        """Those to hand over in one transaction; perhaps none, and another query follows."""
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
            self._bundle = rows[0].bundle  # more of it stands behind this page
            return []
        some = bundles[:1] if self._is_one_by_one else kept.first_fit(bundles)
        return [row for bundle in some for row in bundle]

    def handed_over(self, chosen: Sequence[KeptMessage]) -> None:
        """It was done, and their rows are gone."""
        self.count += len(chosen)

    def failed(self, chosen: Sequence[KeptMessage], error: Exception, *, took_s: float) -> None:
        """It was not, and their rows are there still."""
        self.error = self.error or error
        self._failing_s += took_s
        is_hopeless = isinstance(error, StepFailed | NoNameServer) or not chosen
        if is_hopeless or self._failing_s > FAILING_MAX_S:
            self.is_over = True
        elif len({row.bundle for row in chosen}) > 1:
            self._is_one_by_one = True
        else:
            self._blocked.update(row.message.topic for row in chosen)
