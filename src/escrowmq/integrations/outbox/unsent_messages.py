"""Messages that wait for their database transaction to commit."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.client.core.message import Message, snapshot_of
from escrowmq.client.core.validation import check_message
from escrowmq.errors import UsageError

_ANY_SIZE: Final = 2**63
"""A size limit that never applies here: the producer checks the size of bodies when it sends."""

SAVEPOINTS_MAX: Final = 10_000
"""Limit of the savepoints of one transaction that are open at the same time."""


class Savepoints:
    """The open savepoints of a transaction. Each remembers how many messages had been sent when it
    was made. A second savepoint with a name hides the first one until it is released, as in SQL."""

    def __init__(self) -> None:
        self._open: list[tuple[str, int]] = []

    def add(self, name: str, sent: int) -> None:
        """Add a savepoint."""
        if len(self._open) >= SAVEPOINTS_MAX:
            raise UsageError(
                f"a transaction that sends messages can have at most {SAVEPOINTS_MAX} open "
                f"savepoints, and {name!r} is one more; release some, also after a rollback to "
                "them, or use several transactions"
            )
        self._open.append((name, sent))

    def roll_back(self, name: str) -> int | None:
        """Roll back to a savepoint: it stays open, and later ones are removed. Returns the number
        of messages sent when it was made; None if it is unknown."""
        at = self._find(name)
        if at is None:
            return None
        del self._open[at + 1 :]
        return self._open[at][1]

    def clear(self) -> None:
        """Remove all savepoints, because an older one, unknown here, was rolled back."""
        self._open.clear()

    def release(self, name: str) -> None:
        """Remove a savepoint that was released, and all later ones."""
        at = self._find(name)
        if at is not None:
            del self._open[at:]

    def _find(self, name: str) -> int | None:
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at][0] == name:
                return at
        return None


class UnsentMessages:
    """The messages sent in one transaction so far. A rollback to a savepoint removes those sent
    since it was made."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._savepoints = Savepoints()
        self._lost = ""

    def add(self, message: Message) -> Message:
        """Add a copy of a message as it is now, and return the copy. Raises InvalidMessage if no
        broker would accept it."""
        check_message(message, body_size_max=_ANY_SIZE)
        if self._lost:
            raise UsageError(self._lost)
        if len(self.messages) >= BUNDLE_MESSAGES_MAX:
            raise UsageError(
                f"a database transaction can send at most {BUNDLE_MESSAGES_MAX} messages; "
                "put more into each, or use several transactions"
            )
        kept = snapshot_of(message)
        self.messages.append(kept)
        return kept

    def add_savepoint(self, name: str) -> None:
        """Add a savepoint."""
        self._savepoints.add(name, len(self.messages))

    def roll_back_to(self, name: str) -> None:
        """Remove the messages sent since a savepoint, which was rolled back. If the savepoint is
        unknown, it was made before the first message, and all are removed."""
        sent = self._savepoints.roll_back(name)
        if sent is None:
            self._savepoints.clear()
        del self.messages[sent or 0 :]

    def release_savepoint(self, name: str) -> None:
        """Remove a savepoint that was released, and all later ones; their messages stay."""
        self._savepoints.release(name)

    # -- where savepoints are noticed afterwards ---------------------------------------------

    def lose_track(self, why: str) -> None:
        """Record that it is unknown which messages were rolled back. From now on none is removed,
        and adding one raises."""
        self._lost = self._lost or why

    def roll_back_to_known(self, name: str) -> None:
        """Remove the messages sent since a savepoint, where every savepoint is noticed. If it is
        unknown, lose track."""
        if self._lost:
            return
        sent = self._savepoints.roll_back(name)
        if sent is not None:
            del self.messages[sent:]
        elif self.messages:
            self.lose_track(
                f"the savepoint {name!r} was rolled back, and the outbox has not noticed where it "
                "was made, so it cannot tell which messages were sent behind it; run `savepoint` "
                "as a statement of its own, or use tx.savepoint() or connection.transaction()"
            )

    def check_tracked(self) -> None:
        """Raise UsageError after `lose_track`; the caller must not commit then."""
        if self._lost and self.messages:
            raise UsageError(f"nothing was sent, and all is rolled back: {self._lost}")
