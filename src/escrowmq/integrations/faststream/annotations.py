"""Annotations for handlers' parameters: `async def handle(body: str, message: EscrowMQMessage)`."""

from __future__ import annotations

from typing import Annotated

from faststream import Context

from escrowmq.client.producer import Producer as _Producer
from escrowmq.integrations.faststream.broker import EscrowMQBroker as _Broker
from escrowmq.integrations.faststream.message import EscrowMQMessage as _Message

EscrowMQMessage = Annotated[_Message, Context("message")]
EscrowMQBroker = Annotated[_Broker, Context("broker")]
Producer = Annotated[_Producer, Context("broker.producer")]
"""The broker's `escrowmq.aio.Producer`, for transactions."""
