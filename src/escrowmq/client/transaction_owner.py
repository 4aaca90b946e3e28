"""What transactions need of the producer that they are made by."""

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
    """Ends of which nobody has said that they arrived."""

    def check_open(self) -> None:
        """Raises what it is that keeps it from being used now."""
        ...

    def keep_end(self, told: asyncio.Future[None]) -> asyncio.Future[None]:
        """Brokers are being told how a transaction ended: `flush` and the producer's end wait for
        that. Returns what it was given."""
        ...
