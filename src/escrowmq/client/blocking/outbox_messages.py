"""Messages whose outcome stands in the user's database, for plain code."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence

from escrowmq.client import outbox_messages as engine
from escrowmq.client.blocking.face import Face, plain_face
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome
from escrowmq.client.portal import Awaiting, Portal
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)


@plain_face()
class Marked(Face[engine.Marked]):
    """For integrations: what `escrowmq.client.outbox_messages.Marked` is, from any thread."""

    def __init__(self, portal: Portal, inner: engine.Marked) -> None:
        super().__init__(portal, inner)
        self._sending: Awaiting[None] | None = None

    @property
    def key(self) -> str:
        """Of the marker."""
        return self.inner.key

    @property
    def outcome(self) -> Outcome | None:
        """As far as all brokers have confirmed it; UNKNOWN when the marker is to tell."""
        return self.inner.outcome

    @property
    def error(self) -> EscrowMQError | None:
        """Why they have not."""
        return self.inner.error

    def send(self, messages: Sequence[Message]) -> None:
        """Store all of them, invisible. When one cannot be stored, all are rolled back."""
        self.begin(messages)
        self.stored()

    def begin(self, messages: Sequence[Message]) -> None:
        """Begin to store them; `stored` waits for it."""
        inner = self.inner
        self._sending = self.portal.begin_quickly(
            lambda finish: inner.send_quickly(messages, finish), lambda: inner.send(messages)
        )

    def stored(self) -> None:
        """Wait until all of them are stored. When one cannot be, all are rolled back."""
        assert self._sending is not None
        try:
            self._sending.result()
        except Exception:
            raise
        except BaseException:  # an interrupt: perhaps they are stored, and no commit follows
            self.abandon()
            raise

    def abandon(self) -> None:
        """The database is not going to commit: roll back what was stored, without waiting."""
        self.portal.post(self.inner.abandon)

    @property
    def brokers(self) -> Collection[str]:
        """The names of those that have stored something."""
        return self.inner.brokers

    def leave(self) -> None:
        """The database is about to commit: whatever happens now, the marker tells."""
        self.inner.leave()

    def committed(self) -> None:
        """The database has committed: tell the brokers, in the background. Nothing that goes wrong
        is raised: the marker answers for it."""
        try:
            self.portal.begin_soon(self.inner.committed)
        except EscrowMQError as error:
            _log.warning("the brokers are not told of a commit, and will ask: %s", error)
