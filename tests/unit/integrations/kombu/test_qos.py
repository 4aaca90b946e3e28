"""Messages of a channel that are being worked on."""

from __future__ import annotations

import pytest

pytest.importorskip("kombu")

from escrowmq.errors import ClientClosed
from escrowmq.integrations.kombu import Channel

from .test_reader import Handed
from .test_transport import channel, lay

__all__ = ["channel"]


def test_what_cannot_be_settled_takes_no_room(channel: Channel) -> None:
    """Each took the place of one that may be worked on, for good."""

    class Late(Handed):
        def ack(self) -> None:
            raise ClientClosed("planted")

    lay(channel, Late(b""))
    channel.basic_qos(0, 1, False)
    got = channel.basic_get("q")
    assert not channel.qos.can_consume()
    channel.basic_ack(got.delivery_tag)
    assert channel.qos.can_consume()
