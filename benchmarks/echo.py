"""A server that says everything again, on the event loop that the broker has: what a message costs
when nothing is done with it. Started by whole.py."""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop

_READ_SIZE = 65_536


class Echo(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(self) -> None:
        self._room = memoryview(bytearray(_READ_SIZE))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        """Say them again."""
        self._transport.write(bytes(self._room[:nbytes]))


async def main() -> None:
    """Serve until the process is ended."""
    host, port = sys.argv[1].split(":")
    server = await asyncio.get_running_loop().create_server(Echo, host, int(port))
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
