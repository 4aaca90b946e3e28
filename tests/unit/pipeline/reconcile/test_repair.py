"""Repairs of differences, with a cluster that a test plays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

from escrowmq.base.message import Property
from escrowmq.base.own_properties import REDONE
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.validation import check_message
from escrowmq.errors import NotFound
from escrowmq.pipeline.reconcile.repair import Redo

LOST = {
    "class": "committed-without-final", "messageId": "K", "topic": "paid", "broker": "b",
    "repair": "store the final message again",
}  # fmt: skip


class Sender:
    """Keeps what it is given, if an SDK would send it."""

    def __init__(self) -> None:
        self.sent: list[tuple[Message, dict[str, str]]] = []

    def send(self, message: Message, *, key: str, properties: dict[str, str], queue: Any) -> None:
        check_message(message, body_size_max=1 << 30)
        self.sent.append((message, properties))


def cluster(half: ReceivedMessage) -> Any:
    """A cluster that has a half, committed, and no message of it."""

    def nothing(*names: object, **more: object) -> Any:
        raise NotFound("no such message", code=22, address="b")

    older = SimpleNamespace(queue=SimpleNamespace(broker_name="b"), min_offset=1, max_offset=2)
    return SimpleNamespace(
        messages=SimpleNamespace(get=nothing, prepared=lambda *names, **more: half),
        transactions=SimpleNamespace(show=nothing),
        topics=SimpleNamespace(describe=lambda topic: SimpleNamespace(queues=[older])),
    )


@pytest.mark.parametrize("tag", ["card", "a || b"])
def test_a_lost_message_is_stored_again_with_the_tag_that_it_had(tag: str) -> None:
    """A tag of another client's was refused as a user's mistake, in each redo."""
    half = ReceivedMessage("paid", b"x", tag=tag, keys=["k"], broker_name="b", stored_ms=1)
    sender: Any = Sender()
    counts = Redo(cluster(half), sender, is_dry=False, per_s=0).run([LOST])
    assert counts == {"redone": 1}
    ((message, properties),) = sender.sent
    assert properties[REDONE] == "true"
    assert (message.tag or properties[Property.TAGS]) == tag
    assert message.keys == ["k"]
