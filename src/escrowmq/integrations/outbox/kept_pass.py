"""One pass through the kept messages: decides which of them are sent next.

They are sent in order, many in one transaction. If a transaction fails, its bundles are tried one
by one; a bundle that fails again blocks its topics until the next pass. A bundle with a blocked
topic waits whole, and blocks its other topics too: no later message of these may overtake it.

Rows are locked while their messages are sent, so that several processes take turns. MariaDB, MySQL
and SQLite lock out everybody else who writes such rows, who would wait with them for a broker that
is silent. So nothing is locked until a broker has taken messages in this pass, nor after a failure:
messages are sent first, and if another process was quicker, they are rolled back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from escrowmq.errors import NoNameServer
from escrowmq.integrations.outbox import kept
from escrowmq.integrations.outbox.circuit import Circuit, is_refusal
from escrowmq.integrations.outbox.kept import KeptRow
from escrowmq.integrations.outbox.steps import StepFailed
from escrowmq.integrations.outbox.tables import KEPT, SqlFamily, Statement

FAILING_MAX_S: Final = 10.0
"""A pass ends after failing for this many seconds: each attempt at a broker that does not answer
costs a timeout."""

ROWS_READ_MAX: Final = 200
"""The most rows that are read at a time, without their bodies; a bundle is read whole."""


class KeptPass:
    """One pass through the kept messages. Run `next_query`, pass its rows to `choose_rows`, send
    what that returns, and report the result to `record_sent` or `record_failure`; repeat until
    `is_over`."""

    def __init__(self, family: SqlFamily, circuit: Circuit | None = None) -> None:
        self.is_over = False
        self.count = 0
        """Number of messages that were sent."""
        self.error: Exception | None = None
        """The first error, if there was one."""
        self.has_failed = False
        """Whether an error shows that brokers, or the database, are unreachable."""
        self.refusals: dict[int, str] = {}
        """Log texts about bundles that no broker accepts, by the position of the bundle's first
        row."""
        self.family = family
        self._circuit = circuit
        self._after = 0
        self._bundle = ""
        self._is_one_by_one = False
        self._blocked: set[str] = set()
        self._failing_s = 0.0

    @property
    def refused_topics(self) -> frozenset[str]:
        """The topics that wait behind refused bundles; none if the pass has failed."""
        return frozenset() if self.has_failed else frozenset(self._blocked)

    @property
    def sends_first(self) -> bool:
        """Whether messages are sent before the transaction that deletes their rows."""
        return not self.count or self.error is not None

    def next_query(self) -> Statement:
        """Return the statement for the next rows."""
        blocked = set() if self._bundle else self._blocked
        return kept.select_page(
            self.family,
            after=self._after,
            without=blocked,
            bundle=self._bundle,
            count_max=ROWS_READ_MAX,
            is_locked=not self.sends_first,
        )

    def choose_rows(self, rows: Sequence[KeptRow]) -> list[KeptRow]:
        """Choose the rows to send in one transaction. If there are none, make another query."""
        bundles = kept.group_by_bundle(rows)
        if self._bundle:
            self._bundle = ""
            topics = {row.topic for row in rows}
            if not self._blocked.isdisjoint(topics):
                self._blocked |= topics
            elif bundles:
                return bundles[0]
            elif rows:  # this never happens: a bundle is written and deleted as a whole
                self._after = rows[0].position
            return []
        if not rows:
            self.is_over = True
            return []
        if not bundles:
            self._bundle = rows[0].bundle  # there are more after this page, or of blocked topics
            return []
        some = bundles[:1] if self._is_one_by_one else kept.first_fitting_bundles(bundles)
        return [row for bundle in some for row in bundle]

    def record_sent(self, chosen: Sequence[KeptRow]) -> None:
        """Record that the chosen rows were sent and deleted."""
        self.count += len(chosen)
        if self._circuit is not None:
            self._circuit.count_sent(len(chosen))

    def record_failure(self, chosen: Sequence[KeptRow], error: Exception, *, took_s: float) -> None:
        """Record that the chosen rows were not sent, and remain."""
        self.error = self.error or error
        self._failing_s += took_s
        self.has_failed = self.has_failed or not is_refusal(error)
        is_hopeless = isinstance(error, StepFailed | NoNameServer) or not chosen
        if is_hopeless or self._failing_s > FAILING_MAX_S:
            self.is_over = True
        elif len({row.bundle for row in chosen}) > 1:
            self._is_one_by_one = True
        else:
            self._blocked.update(row.topic for row in chosen)
            if is_refusal(error):
                self.refusals[chosen[0].position] = _refusal_text(chosen, error)


def _refusal_text(chosen: Sequence[KeptRow], error: Exception) -> str:
    topics = ", ".join(sorted({row.topic for row in chosen}))
    return (
        f"the {len(chosen)} kept messages of one transaction (rows of {KEPT} with the bundle "
        f"{chosen[0].bundle!r}), to {topics}, are refused: {error}. Later messages of these topics "
        "wait behind them, and the attempt is repeated. Remove the cause (a missing right, a limit "
        "of the broker), or delete these rows to give the messages up"
    )
