"""Rules that hold for every half, no matter which code ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import SendResult, is_delayed
from escrowmq.client.instance import ClientInstance
from escrowmq.errors import HalfNotSafe, TransactionBroken, UsageError

if TYPE_CHECKING:
    from escrowmq.client.transaction_owner import TransactionOwner

OUR_LANGUAGE: Final = "PYTHON"
"""The language that EscrowMQ's brokers report; RocketMQ's report JAVA."""


async def require_escrowmq_broker(instance: ClientInstance, queue: MessageQueue) -> None:
    """Raise unless the queue's broker is EscrowMQ's. RocketMQ's brokers lose delayed halves: their
    delivery would write to the half topic, which refuses it."""
    address = instance.address_of(queue.broker_name)
    connection = await instance.pool.get(address)
    if connection.language is None:
        await instance.heartbeats.send_to(address)
    if connection.language != OUR_LANGUAGE:
        raise UsageError(
            f"broker {queue.broker_name} is not EscrowMQ's and would lose a transactional "
            "message with a delay; leave the delay out"
        )


def half_not_safe_error(result: SendResult) -> HalfNotSafe:
    """Make the error after a half was rolled back because it was stored less safely than
    required."""
    return HalfNotSafe(
        f"the first phase was stored with {result.status.name} only and was rolled back; "
        "try again, repair the broker's disk or slave, or set accepts_unsafe_halves"
    )


def transaction_broken_error(failure: BaseException | None) -> TransactionBroken:
    """Make the error for a transaction in which a message could not be sent."""
    broken = TransactionBroken(
        "a message of the transaction could not be sent, so all of it is rolled back; run the "
        "transaction again"
    )
    broken.__cause__ = failure
    return broken


async def required_queue(
    owner: TransactionOwner, message: Message, *, began_at: str
) -> MessageQueue | None:
    """Return the queue that a half must go to: on the broker where the transaction began, or for a
    delayed half on one that supports it. None if any broker will do."""
    queue = None
    if began_at:
        queue = await owner.dispatch.choose_queue(message, broker_name=began_at)
    if is_delayed(message):
        queue = queue or await owner.dispatch.choose_queue(message)
        await require_escrowmq_broker(owner.instance, queue)
    return queue
