"""Messages whose outcome is decided by the user's database: the blocking class."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Self

from escrowmq.client import outbox_messages as engine
from escrowmq.client.blocking.face import Face, shorten_tracebacks
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import Outcome
from escrowmq.client.portal import PendingCall, Portal
from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)


@shorten_tracebacks()
class MarkedMessages(Face[engine.MarkedMessages]):
    """The blocking form of `client.outbox_messages.MarkedMessages`, for integrations; callable from
    any thread."""

    def __init__(self, portal: Portal, inner: engine.MarkedMessages) -> None:
        super().__init__(portal, inner)
        self._sending: PendingCall[None] | None = None

    @property
    def key(self) -> str:
        """The key of the marker, that is, of the row in the user's database."""
        return self.inner.key

    @property
    def outcome(self) -> Outcome | None:
        """The outcome, once all brokers have confirmed it; UNKNOWN if the marker decides."""
        return self.inner.outcome

    @property
    def error(self) -> EscrowMQError | None:
        """The error because of which brokers did not confirm the outcome; None if there was
        none."""
        return self.inner.error

    def without_resends(self) -> Self:
        """Make `send` and `wait_until_stored` fail where they would otherwise send a message again
        that may be stored already. Returns this object."""
        self.inner.without_resends()
        return self

    def validate(self, messages: Sequence[Message]) -> None:
        """Raise InvalidMessage if no broker would accept one of the messages. Nothing is sent."""
        self.inner.validate(messages)

    def send(self, messages: Sequence[Message]) -> None:
        """Store all messages, invisible. If one cannot be stored, all are rolled back."""
        self.start_storing(messages)
        self.wait_until_stored()

    def start_storing(self, messages: Sequence[Message]) -> None:
        """Start to store the messages, without waiting; `wait_until_stored` waits for it."""
        inner = self.inner
        self._sending = self.portal.begin_without_task(
            lambda finish: inner.try_send(messages, finish), lambda: inner.send(messages)
        )

    def wait_until_stored(self) -> None:
        """Wait until all messages are stored. If one cannot be, all are rolled back."""
        assert self._sending is not None
        try:
            self._sending.result()
        except Exception:
            raise
        except BaseException:  # an interrupt: perhaps they are stored, and no commit follows
            self.abandon()
            raise

    def abandon(self) -> None:
        """Roll back the stored messages, without waiting, because the database will not commit."""
        self.portal.post(self.inner.abandon)

    @property
    def broker_names(self) -> Collection[str]:
        """The names of the brokers that have stored messages."""
        return self.inner.broker_names

    def leave_to_marker(self) -> None:
        """Leave the decision to the marker from now on, because the database is about to commit."""
        self.inner.leave_to_marker()

    def report_commit(self) -> None:
        """Report the database's commit to the brokers in the background. Errors are not raised,
        because the marker answers the checks."""
        try:
            self.portal.post_in_order(self.inner.report_commit)
        except EscrowMQError as error:
            _log.warning("a commit was not reported to the brokers, which will ask: %s", error)
