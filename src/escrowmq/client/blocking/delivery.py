"""A received message with blocking methods."""

from __future__ import annotations

import datetime as dt

from escrowmq.client.blocking.face import shorten_tracebacks
from escrowmq.client.core.redelivery import NEVER, delay_level
from escrowmq.client.delivery import HeldMessage
from escrowmq.client.portal import Caller
from escrowmq.errors import UsageError


@shorten_tracebacks()
class Delivery(HeldMessage, kw_only=True, eq=False):
    """A message that was delivered. It is acknowledged automatically when the loop asks for the
    next one or the handler returns, unless one of these methods was called.

    >>> with escrowmq.Consumer(nameserver, group="careful", topic="paid") as consumer:
    ...     (message,) = consumer.receive(1)
    ...     if message.deliveries_before < 3:
    ...         message.retry(after=60)
    ...     else:
    ...         message.reject()
    """

    portal: Caller | None = None
    """The portal on which the methods run; only this library uses it."""

    def ack(self) -> None:
        """Acknowledge the message: no member of the group gets it again."""
        self._settle(None)

    def retry(self, after: dt.timedelta | float | None = None) -> None:
        """Have the message redelivered: after the broker's own back-off, or after a time (a
        timedelta, or seconds; rounded up to the broker's next delay level)."""
        self._settle(delay_level(after))

    def reject(self) -> None:
        """Move the message to the group's dead letters; it is not redelivered."""
        self._settle(NEVER)

    def _settle(self, level: int | None) -> None:
        owner = self.owner_for_decision(level)
        if self.portal is None:
            raise UsageError("this message came from no consumer; there is nothing to settle")
        if level is not None or not self.must_defer_ack():
            self.portal.call(owner.settle(self, level))
