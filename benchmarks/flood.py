"""Halves at a pace that does not wait for answers.

    python benchmarks/flood.py ADDRESS RATE SECONDS

A frame is made once and its number changed for each half, and of an answer only the code is looked
at, so that this process offers more than a broker can take.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time

import pipe

from escrowmq.base.command import Command
from escrowmq.codec.command import encode_command

_LINKS_COUNT = 8
_UNANSWERED_MAX = 20_000
_FRONT = struct.Struct(">I4xh")
"""Frame size, and the code of a binary header."""

_NUMBER = b"%016X"


class Flood(asyncio.Protocol):
    """Writes frames; counts answers by their code."""

    def __init__(self) -> None:
        self.sent = self.accepted = self.shed = 0
        self.transport: asyncio.Transport | None = None
        self._held = b""
        code, ext, body = pipe.half("Flood", 0)
        request = Command(code=code, opaque=1, version=479, ext=ext, body=body, is_binary=True)
        frame = encode_command(request)
        self._before, self._after = frame.split(_NUMBER % 0, 1)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        data = self._held + data
        at, end = 0, len(data)
        while at + _FRONT.size <= end:
            size, code = _FRONT.unpack_from(data, at)
            if at + 4 + size > end:
                break
            at += 4 + size
            if code == 0:
                self.accepted += 1
            else:
                assert code == 2, code
                self.shed += 1
        self._held = data[at:]

    @property
    def unanswered(self) -> int:
        """Halves without an answer."""
        return self.sent - self.accepted - self.shed

    def offer(self, count: int) -> None:
        """Write so many."""
        assert self.transport is not None
        numbers = range(self.sent + 1, self.sent + 1 + count)
        self.transport.write(b"".join([self._before + _NUMBER % n + self._after for n in numbers]))
        self.sent += count


async def flood(address: str, rate: float, seconds: float) -> dict[str, int]:
    """Offer them over some connections; what became of them."""
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    pairs = [await loop.create_connection(Flood, host, int(port)) for _ in range(_LINKS_COUNT)]
    links = [link for _, link in pairs]
    begin, offered = time.monotonic(), 0
    while (now := time.monotonic() - begin) < seconds:
        due = min(int(now * rate) - offered, 1_000)
        offered += max(0, due)
        for link in links:
            count = min(due // len(links), _UNANSWERED_MAX - link.unanswered)
            if count > 0:  # a sender that has too much under way waits at last, as all do
                link.offer(count)
        await asyncio.sleep(0.001)
    while any(link.unanswered for link in links):
        await asyncio.sleep(0.01)
    return {
        "offered": offered,
        "sent": sum(link.sent for link in links),
        "accepted": sum(link.accepted for link in links),
        "shed": sum(link.shed for link in links),
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(flood(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))))
