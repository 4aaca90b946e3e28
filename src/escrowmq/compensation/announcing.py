"""The producer's side: announces each commit in a separate topic."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Unpack

import escrowmq
from escrowmq.client.announced_commits import Member
from escrowmq.client.producer_settings import MessageFields
from escrowmq.errors import OutcomeUnknown

_log = logging.getLogger(__name__)

TOPIC: Final = "escrow-announced"
"""The default topic of announcements."""


class Announcer:
    """Announces what a producer commits.

    >>> announcer = Announcer(producer)
    >>> with announcer.transaction("paid", b"order 1") as tx:
    ...     pass  # change the database here
    ...     tx.database_decides()
    ...     pass  # and commit it here
    """

    def __init__(self, producer: escrowmq.Producer, *, topic: str = TOPIC) -> None:
        self._producer = producer
        self._topic = topic

    @contextmanager
    def transaction(
        self, topic: str | escrowmq.Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> Iterator[escrowmq.Transaction]:
        """The producer's own transaction, announced when its block has ended without an exception.
        An unconfirmed commit is not an error here: announcements exist for that case."""
        is_done = False
        tx = self._producer.transaction(topic, body, **fields)
        try:
            with tx:
                yield tx
                is_done = tx.plan is escrowmq.Outcome.COMMIT
        except OutcomeUnknown as error:
            if not is_done:
                raise
            _log.warning("%s; the commit is announced nevertheless", error)
        if is_done:
            self.announce(tx.results[0].message_id, topic=tx.message.topic)

    def announce(self, message_id: str, *, topic: str) -> None:
        """Announce that the transaction of a message was committed."""
        self._producer.send(self._topic, str(Member(message_id, topic)).encode(), keys=[message_id])
