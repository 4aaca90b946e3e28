"""The parts of a producer that its transactions use."""

from __future__ import annotations

import asyncio
from typing import Protocol

from escrowmq.client.core.verdicts import KnownOutcomes
from escrowmq.client.end_sender import EndSender
from escrowmq.client.instance import ClientInstance
from escrowmq.client.producer_settings import ProducerOptions
from escrowmq.client.send_flow import SendDispatch


class TransactionOwner(Protocol):
    """A producer, as its transactions use it."""

    instance: ClientInstance
    dispatch: SendDispatch
    settler: EndSender
    verdicts: KnownOutcomes
    options: ProducerOptions
    wire_group: str
    unconfirmed_count: int
    """Number of ENDs that no broker has confirmed."""

    def check_open(self) -> None:
        """Raise if the producer cannot be used by the caller."""
        ...

    def track_end(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        """Make `flush` and closing the producer wait for an END. Returns its argument."""
        ...
