"""Messages that wait for their database transaction to commit."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.client.core.message import Message
from escrowmq.client.core.validation import check_message
from escrowmq.errors import UsageError

_ANY_SIZE: Final = 2**63
"""The producer checks the size of bodies when it sends."""

SAVEPOINTS_MAX: Final = 10_000
"""Savepoints of one transaction that are open at the same time."""


class UnsentMessages:
    """The messages sent in one transaction so far. A rollback to a savepoint removes those sent
    since it was made."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._savepoints: dict[str, int] = {}

    def add(self, message: Message) -> None:
        """Add a message. Raises InvalidMessage if no broker would accept it."""
        check_message(message, body_size_max=_ANY_SIZE)
        if len(self.messages) >= BUNDLE_MESSAGES_MAX:
            raise UsageError(
                f"a database transaction can send at most {BUNDLE_MESSAGES_MAX} messages; "
                "put more into each, or use several transactions"
            )
        self.messages.append(message)

    def savepoint(self, name: str) -> None:
        """A savepoint is made."""
        if len(self._savepoints) >= SAVEPOINTS_MAX:
            raise UsageError(
                f"a transaction that sends messages can have at most {SAVEPOINTS_MAX} open "
                "savepoints; release some"
            )
        # The same name again hides the first one, as in SQL: PostgreSQL's and SQLite's first one
        # is found again behind the release, which is no news to those that make names of numbers.
        self._savepoints.pop(name, None)
        self._savepoints[name] = len(self.messages)

    def rolled_back_to(self, name: str) -> None:
        """A savepoint was rolled back; if it was made before anything was sent, all messages are
        removed."""
        # The savepoint stays, as in SQL: it may be rolled back to again.
        del self.messages[self._savepoints.get(name, 0) :]

    def released(self, name: str) -> None:
        """A savepoint was released, and with it all later ones; their messages stay."""
        if name in self._savepoints:
            while self._savepoints.popitem()[0] != name:
                pass
