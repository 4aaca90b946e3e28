"""Where the message of a committed half goes; `test_rules.py` breaks the rules for halves."""

from __future__ import annotations

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.message import Message
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.sends.half_rules import HalfRules
from escrowmq.codec.hashes import java_hash
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.delivery.delayed_messages import DelayRules
from escrowmq.delivery.topics import TopicConfig, TopicTable


@pytest.fixture(name="rules")
def make_rules() -> HalfRules:
    settings = BrokerSettings()
    topics = TopicTable(settings)
    topics.put(TopicConfig(topic_name="T", read_queue_nums=8, write_queue_nums=3), 1_000)
    return HalfRules(
        settings, DelayRules(StoreSettings(), settings), topics, Clients(), is_there=lambda _: True
    )


def queue_of(rules: HalfRules, topic: str, **properties: str) -> int:
    message = Message(topic=topic, body=b"x", queue_id=7, properties=properties)
    return rules.record_to_deliver(message, 1_000).queue_id


def test_a_message_with_an_order_key_goes_to_the_queue_of_the_key(rules: HalfRules) -> None:
    for key in ("customer 7", "k"):
        assert queue_of(rules, "T", escrowOrderKey=key) == abs(java_hash(key)) % 3


def test_any_other_message_stays_in_the_queue_that_its_sender_chose(rules: HalfRules) -> None:
    assert queue_of(rules, "T") == queue_of(rules, "T", escrowOrderKey="") == 7
    assert queue_of(rules, "deleted meanwhile", escrowOrderKey="k") == 7


def test_a_delay_begins_at_the_commit(rules: HalfRules) -> None:
    marked = {"DELAY": "3", "escrowDelay": "true"}
    message = Message(topic="T", body=b"x", properties=marked)
    assert rules.record_to_deliver(message, 1_000).topic == "SCHEDULE_TOPIC_XXXX"


def test_only_producers_that_can_be_reached_are_asked() -> None:
    settings, clients = BrokerSettings(), Clients()
    for peer in (1, 2):
        clients.add_producer("PG", Channel(peer, f"c{peer}", "JAVA", 0, "10.0.0.1:1", 1_000))
    rules = HalfRules(
        settings,
        DelayRules(StoreSettings(), settings),
        TopicTable(settings),
        clients,
        is_there=lambda peer: peer == 2,
    )
    assert [member.client_id for member in rules.producers_of("PG")] == ["c2"]
