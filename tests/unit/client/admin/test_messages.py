"""Messages as an operator looks at them."""

from __future__ import annotations

import asyncio
import zlib

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.message import StoredMessage
from escrowmq.client.core.routes import MessageQueue
from escrowmq.codec.record import encode_message
from escrowmq.errors import NotFound
from tests.unit.client.peer import DEADLINE_S, Link, a_peer
from tests.unit.client.test_admin_counts import an_admin

PACKED = 0x301


def record(queue_offset: int, body: bytes) -> bytes:
    message = StoredMessage(
        topic="T", body=body, queue_id=0, queue_offset=queue_offset, log_offset=queue_offset,
        stored_ms=1, record_size=0, sys_flag=PACKED, properties={"KEYS": "k", "UNIQ_KEY": "U"},
    )  # fmt: skip
    return encode_message(message)


def test_a_body_that_does_not_unpack_is_shown_as_it_is_and_hides_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One such message, and nothing that was found beside it could be looked at, nor it itself."""
    broken, good = record(0, b"not packed"), record(1, zlib.compress(b"good"))

    def give(link: Link, command: Command) -> None:
        link.reply(command, body=broken + good)

    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            names.be_name_server(broker.address, topics=("T",), queues_count=1)
            broker.answers |= {Request.PULL_MESSAGE: give, Request.QUERY_MESSAGE: give}
            for found in (
                await admin.messages.at(MessageQueue("T", "b", 0), 0, count_max=2),
                await admin.messages.find("T", "k"),
            ):
                assert [message.body for message in found] == [b"not packed", b"good"]
            message = await admin.messages.get("U", topic="T")
            assert message.body == b"not packed"
            assert "T/0: the body of message 0 is shown as stored: body of 10 bytes" in caplog.text

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ({"minOffset": "3", "maxOffset": "5"}, "it has the offsets 3 to 4"),
        ({"minOffset": "5", "maxOffset": "5"}, "it is empty, and its next message gets 5"),
        ({}, "does not say"),
    ],
)
def test_a_place_without_a_message_is_told_with_those_that_there_are(
    bounds: dict[str, str], said: str
) -> None:
    """An empty queue was said to hold 0 to 0."""

    async def go() -> None:
        async with a_peer() as names, a_peer() as broker, an_admin(broker, names) as admin:
            names.be_name_server(broker.address, topics=("T",), queues_count=1)
            broker.answers[Request.PULL_MESSAGE] = lambda link, command: link.reply(
                command, Response.PULL_OFFSET_MOVED, ext={**bounds, "nextBeginOffset": "5"}
            )
            with pytest.raises(NotFound, match=f"has no message at 9; .*{said}"):
                await admin.messages.at(MessageQueue("T", "b", 0), 9)

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))
