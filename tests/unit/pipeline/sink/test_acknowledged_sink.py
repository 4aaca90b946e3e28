"""Sends of the plain sink."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("pyarrow")

from escrowmq.client.core.message import Message
from escrowmq.pipeline.sink import acknowledged_sink
from escrowmq.pipeline.sink.acknowledged_sink import RowSender, first_error
from escrowmq.pipeline.sink.options import parse_sink_options
from escrowmq.pipeline.sink.rows import AddressedMessage


def test_the_first_error_of_groups_in_groups() -> None:
    first, second = ValueError("first"), ValueError("second")
    inner = ExceptionGroup("inner", [first, second])
    assert first_error(ExceptionGroup("outer", [inner, second])) is first


class Watched:
    """A producer that knows how many bytes are in flight."""

    def __init__(self) -> None:
        self.size = self.size_max = self.count = self.count_max = self.total = 0
        self.sent: list[Message] = []
        self.dispatch = self

    def prepare(self, message: Message, properties: dict[str, str]) -> object:
        return None

    async def send(self, message: Message, *, queue: object) -> None:
        await self.send_many([message])

    async def send_prepared(self, message: Message, out: object, *, queue: object) -> None:
        await self.send_many([message])

    async def send_many(self, messages: list[Message]) -> None:
        size = sum(len(each.body) for each in messages)
        self.size, self.count = self.size + size, self.count + 1
        self.size_max = max(self.size_max, self.size)
        self.count_max = max(self.count_max, self.count)
        await asyncio.sleep(0)
        self.sent += messages
        self.size, self.count = self.size - size, self.count - 1
        self.total += len(messages)


@pytest.mark.parametrize("is_keyed", [False, True])
@pytest.mark.parametrize("order_key", ["", "k"])
def test_large_rows_leave_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch, is_keyed: bool, order_key: str
) -> None:
    """Over a network of 20 MB/s, 64 rows of 4 MB were never confirmed in time, and each was stored
    again and again."""
    monkeypatch.setattr(acknowledged_sink, "IN_FLIGHT_SIZE_MAX", 1 << 20)
    given = {"nameServer": "h:1", "topic": "t"}
    options = parse_sink_options(given, is_stream=False, columns=["body"])
    sizes = [300_000] * 50 + [3_000_000] * 3 + [10] * 500
    rows = [
        AddressedMessage(Message("t", bytes(size), order_key=order_key and f"{order_key}{n % 9}"))
        for n, size in enumerate(sizes)
    ]
    watched: Any = Watched()

    async def send() -> None:
        sender = RowSender(watched, options)
        if is_keyed:
            await sender.send_keyed(rows, key_prefix="q/1/0", first=0)
        else:
            await sender.send(rows)

    asyncio.run(asyncio.wait_for(send(), 60))
    assert watched.total == len(rows)
    assert watched.size_max < 4_300_000, "one that is larger, and small ones"
    assert watched.count_max > 1


def test_a_row_that_leaves_alone_keeps_its_place_among_those_of_its_key() -> None:
    given = {"nameServer": "h:1", "topic": "t", "batchSize": "2"}
    options = parse_sink_options(given, is_stream=False, columns=["body"])
    rows = [
        AddressedMessage(
            Message("t", b"%d" % n, order_key="ab"[n % 2]),
            extra={"TAGS": "a||b"} if n % 3 == 1 else {},
        )
        for n in range(30)
    ]
    watched: Any = Watched()
    asyncio.run(RowSender(watched, options).send(rows))
    for key in "ab":
        numbers = [int(each.body) for each in watched.sent if each.order_key == key]
        assert numbers == sorted(numbers)
        assert len(numbers) == 15
