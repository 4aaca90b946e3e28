"""Kombu's channel, over readers that a test lays out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kombu")

import kombu

from escrowmq.client.consumer_settings import ConsumerOptions
from escrowmq.integrations.kombu import Channel
from escrowmq.integrations.kombu.reader import BufferedMessage
from escrowmq.testing import Broker

from .test_reader import Handed


class Laid:
    """A reader that has these, and says when it is ended."""

    def __init__(self, *handed: Handed) -> None:
        self._handed = list(handed)
        self.is_closed = False

    def next_message(self) -> BufferedMessage | None:
        if not self._handed:
            return None
        properties = {"delivery_tag": "sent", "delivery_info": {}}
        payload = {"body": "b", "headers": {}, "properties": properties}
        delivery: Any = self._handed.pop(0)
        return BufferedMessage(payload, delivery)

    def wait_for_poll(self) -> None:
        pass

    def pause(self) -> None:
        pass

    def resume(self) -> None:
        pass

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def channel(escrowmq_broker: Broker) -> Iterator[Channel]:
    with kombu.Connection(f"escrowmq://{escrowmq_broker.nameserver}") as connection:
        found = connection.channel()
        assert isinstance(found, Channel)
        yield found


ANY_ID = "0b9c7f1e-6a53-4d0e-9f1b-0d3c5e7a9b11"


@pytest.mark.parametrize(
    ("name", "declared", "is_passing"),
    [
        ("tasks", {"durable": True}, False),
        ("tasks", {"durable": False}, False),
        ("tasks", {"durable": True, "auto_delete": True}, False),
        ("tasks", {"durable": False, "auto_delete": True}, False),
        (f"tasks.{ANY_ID}", {"durable": False}, False),
        ("mine", {"durable": False, "exclusive": True}, True),
        # Broadcast, a receiver of events, a mailbox, and where its answers go
        (f"bcast.{ANY_ID}", {"durable": True, "auto_delete": True}, True),
        (f"celeryev.{ANY_ID}", {"durable": False, "auto_delete": True}, True),
        ("one@shop.celery.pidbox", {"durable": False, "auto_delete": True}, True),
        (f"{ANY_ID}.reply.celery.pidbox", {"durable": False, "auto_delete": True}, True),
    ],
)
def test_a_queue_with_a_name_that_others_share_is_shared(
    channel: Channel, name: str, declared: dict[str, bool], is_passing: bool
) -> None:
    """Each that was not durable went to all of its consumers."""
    channel.queue_declare(name, **declared)
    assert (name in channel.connection.temporary_queues) == is_passing


def test_a_long_task_lets_only_so_many_later_ones_be_finished_before_it(
    escrowmq_broker: Broker,
) -> None:
    """Each of them runs again when the worker is killed."""
    url = f"escrowmq://{escrowmq_broker.nameserver}"
    own: dict[str, Any] = {"consumer": {"prefetch_span_max": 7}}
    for options, span in (({}, 128), (own, 7)):
        with kombu.Connection(url, transport_options=options) as connection:
            found = connection.channel()
            assert isinstance(found, Channel)
            assert ConsumerOptions(**found.connection.consumer_settings).prefetch_span_max == span


def lay(channel: Channel, *handed: Handed) -> None:
    reader: Any = Laid(*handed)
    channel._readers["q"] = reader


def test_a_message_that_is_got_without_acknowledgement_is_done(channel: Channel) -> None:
    """It was never acknowledged, and came again with the next process."""
    one, two = Handed(b""), Handed(b"")
    lay(channel, one, two)
    assert channel.basic_get("q", no_ack=True) is not None
    assert (one.told, channel.held) == (["ack"], {})
    got = channel.basic_get("q")
    assert two.told == []
    channel.basic_ack(got.delivery_tag)
    assert (two.told, channel.held) == (["ack"], {})
    assert channel.basic_get("q", no_ack=True) is None


def test_who_consumes_with_acknowledgements_after_one_without_has_them(channel: Channel) -> None:
    """The queue stayed one whose messages are done when they are handed out."""
    got: list[Any] = []
    lay(channel)
    channel.basic_consume("q", True, got.append, "first")
    channel.basic_cancel("first")
    handed = Handed(b"")
    lay(channel, handed)
    channel.basic_consume("q", False, got.append, "second")
    channel._get("q")
    assert handed.told == []
    assert len(channel.held) == 1


@pytest.mark.parametrize(
    ("task_id", "keys"),
    [
        ("0b9c7f1e", ["0b9c7f1e"]), ("order 5", []), ("a\x01b", []), ("", []), (5, []),
        ("x" * 40_000, []), ("ü", ["ü"]),
    ],
)  # fmt: skip
def test_a_task_may_have_any_id(
    escrowmq_broker: Broker, channel: Channel, task_id: object, keys: list[str]
) -> None:
    """One that cannot be a key of a message refused the whole task."""
    message = channel.prepare_message("b", headers={"id": task_id})
    channel.basic_publish(message, "", "tasks")
    (found,) = escrowmq_broker.messages("celery-tasks")
    assert found.keys == keys
