"""What transactions need of their producer."""

from __future__ import annotations

import asyncio
from typing import Protocol

from escrowmq.client.core.verdicts import Verdicts
from escrowmq.client.end_sender import Settler
from escrowmq.client.instance import Instance
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.send_flow import SendDispatch


class TransactionOwner(Protocol):
    """A producer, as its transactions see it."""

    instance: Instance
    dispatch: SendDispatch
    settler: Settler
    verdicts: Verdicts
    options: ProducerOptions
    wire_group: str
    unconfirmed_count: int
    """ENDs that no broker has confirmed."""

    def check_open(self) -> None:
        """Raise if it cannot be used now."""
        ...

    def keep_end(self, told: asyncio.Future[None]) -> asyncio.Future[None]:
        """An END is being sent: `flush` and closing the producer wait for it. Returns its
        argument."""
        ...
