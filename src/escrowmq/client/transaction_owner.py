"""The parts of a producer that its transactions use."""

from __future__ import annotations

import asyncio
from typing import Protocol

from escrowmq.client.core.verdicts import Verdicts
from escrowmq.client.end_sender import Settler
from escrowmq.client.instance import Instance
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.send_flow import SendDispatch


class TransactionOwner(Protocol):
    """A producer, as its transactions use it."""

    instance: Instance
    dispatch: SendDispatch
    settler: Settler
    verdicts: Verdicts
    options: ProducerOptions
    wire_group: str
    unconfirmed_count: int
    """Number of ENDs that no broker has confirmed."""

    def check_open(self) -> None:
        """Raise if the producer cannot be used by the caller."""
        ...

    def keep_end(self, told: asyncio.Future[None]) -> asyncio.Future[None]:
        """Make `flush` and closing the producer wait for an END. Returns its argument."""
        ...
