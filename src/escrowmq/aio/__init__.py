"""The public names of `escrowmq` for asyncio: the same classes with coroutine methods."""

from escrowmq.client.admin.admin import Admin
from escrowmq.client.client_settings import Credentials
from escrowmq.client.consumer import Consumer
from escrowmq.client.core.hooks import Interceptor
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, SendResult, SendStatus
from escrowmq.client.delivery import Delivery
from escrowmq.client.producer import Producer
from escrowmq.client.tls import Tls
from escrowmq.client.transaction import Transaction

__all__ = [
    "Admin",
    "Consumer",
    "Credentials",
    "Delivery",
    "Interceptor",
    "Message",
    "MessageQueue",
    "Outcome",
    "Producer",
    "ReceivedMessage",
    "SendResult",
    "SendStatus",
    "Tls",
    "Transaction",
]
