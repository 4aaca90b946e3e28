"""Unsettled messages of a channel: acknowledged, requeued or rejected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from kombu.transport import virtual

from escrowmq.client.blocking.delivery import Delivery
from escrowmq.errors import ClientClosed

_log = logging.getLogger(__name__)

_REQUEUE_S: Final = 1.0
"""Delay in seconds before a requeued message is redelivered."""


class UnsettledMessage(NamedTuple):
    """A message that is being processed."""

    queue: str
    delivery: Delivery


class QoS(virtual.QoS):
    """Messages that are being processed. They are settled at the broker, so nothing has to be
    restored: unsettled messages are redelivered."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        self._settle(delivery_tag, lambda delivery: delivery.ack())

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Requeue a message, or move it to the dead letters."""
        self._settle(
            delivery_tag,
            lambda delivery: delivery.retry(_REQUEUE_S) if requeue else delivery.reject(),
        )

    def restore_unacked(self) -> list[tuple[BaseException, virtual.Message]]:
        """Requeue all messages that are being processed. Kombu's own method would store copies, in
        addition to messages that the broker redelivers."""
        self._flush()
        for delivery_tag in [*self._delivered]:
            self.reject(delivery_tag, requeue=True)
        return []  # nothing failed: what could not be requeued is redelivered later

    def _settle(self, delivery_tag: str, decide: Callable[[Delivery], None]) -> None:
        held = self.channel.held.pop(delivery_tag, None)
        try:
            if held is not None:
                decide(held.delivery)
                self.channel.leave_group_if_done(held.queue)
        except ClientClosed as error:
            _log.warning("a message is redelivered, because it was settled too late: %s", error)
        finally:  # in any case, another message can be processed
            super().ack(delivery_tag)
            self.channel.notify_capacity()
