"""For which queues offsets and locks are kept."""

from __future__ import annotations

from escrowmq.delivery.existing_queues import ExistingQueues
from tests.harness.exchange import Exchange


def test_queues_of_topics_exist_and_removed_ones_that_may_have_messages() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=3)
    exchange.connect().send("T", queue_id=2)
    exchange.create_topic("T", queues=1)
    broker = exchange.core.broker
    queues = ExistingQueues(exchange.settings, broker.topics, broker.store)
    found = [place in queues for place in (("T", 0), ("T", 1), ("T", 2), ("T", -1), ("U", 0))]
    assert found == [True, False, True, False, False]
    exchange.settings.places_as_rocketmq = True
    assert ("U", 1_000_000) in queues
