"""A server that does nothing, on the event loop that the broker has: what a message costs when only
the kernel, the loop and the interpreter are asked. It answers a frame by one of the size that the
frame asks for in the four bytes behind its length. Started by whole.py; nothing.c is the same in C.
"""

from __future__ import annotations

import asyncio
import sys
from functools import lru_cache
from typing import cast

import uvloop

_READ_SIZE = 65_536


@lru_cache
def answer(size: int) -> bytes:
    """A frame of so many bytes."""
    return (size - 4).to_bytes(4, "big") + bytes(size - 4)


class Nothing(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(_READ_SIZE))
        self._held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Answer what is whole, in one write."""
        data = self._held + self._room[:nbytes]
        answers = []
        at = 0
        while len(data) - at >= 8:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            answers.append(answer(int.from_bytes(data[at + 4 : at + 8], "big")))
            at = end
        self._held = data[at:]
        if answers:
            self._transport.write(b"".join(answers))


async def main() -> None:
    """Serve until the process is ended."""
    host, port = sys.argv[1].split(":")
    server = await asyncio.get_running_loop().create_server(Nothing, host, int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
