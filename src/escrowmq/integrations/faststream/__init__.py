"""A broker of FastStream. `docs/frameworks.md` is the guide.

    broker = EscrowMQBroker("127.0.0.1:9876", group="shop")

    @broker.subscriber("paid", group="mailer")
    @broker.publisher("mailed")
    async def mail(order: Order) -> Mail: ...

Handlers are tested with `TestEscrowMQBroker`, as those of FastStream's own brokers are.
"""

from escrowmq.base.extras import require_extra

require_extra("faststream", "faststream")

from escrowmq.integrations.faststream.annotations import EscrowMQMessage
from escrowmq.integrations.faststream.broker import EscrowMQBroker
from escrowmq.integrations.faststream.publishing import EscrowMQPublisher, EscrowMQResponse
from escrowmq.integrations.faststream.registering import EscrowMQRouter
from escrowmq.integrations.faststream.testing import TestEscrowMQBroker

__all__ = [
    "EscrowMQBroker",
    "EscrowMQMessage",
    "EscrowMQPublisher",
    "EscrowMQResponse",
    "EscrowMQRouter",
    "TestEscrowMQBroker",
]
