"""A transport of kombu, on which Celery runs. `docs/frameworks.md` is the guide.

    import escrowmq.integrations.kombu  # makes escrowmq:// known

    app = Celery("shop", broker="escrowmq://127.0.0.1:9876", backend="redis://127.0.0.1")

A queue is a topic, and its workers are the members of a consumer group.
"""

from escrowmq.base.extras import require_extra

require_extra("celery", "celery", "kombu")

from kombu.transport import TRANSPORT_ALIASES

from escrowmq.integrations.kombu.transport import Channel, Transport

__all__ = ["Channel", "Transport"]

TRANSPORT_ALIASES["escrowmq"] = "escrowmq.integrations.kombu:Transport"
