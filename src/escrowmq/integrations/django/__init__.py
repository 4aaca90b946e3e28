"""Sends messages exactly if Django's `transaction.atomic` commits; handles messages once. Put
`escrowmq.integrations.django` into INSTALLED_APPS and run `migrate`. `docs/outbox.md` is the guide.

    outbox = Outbox(producer)
    with transaction.atomic():
        Order.objects.create(id="o-1")
        outbox.send("paid", b"order 1", keys=["o-1"])
"""

from escrowmq.base.extras import require_extra

require_extra("django", "django")

from escrowmq.integrations.django.inbox import consume_once
from escrowmq.integrations.django.outbox import Outbox

__all__ = ["Outbox", "consume_once"]
