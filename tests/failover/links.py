"""Ways between processes, through which bytes pass until a test stops them.

A frozen way is a network that loses packets: nothing arrives, no connection closes, and what was
sent arrives once it is thawed. A way listens as long as the port behind it does, so that a process
that has ended refuses connections here too."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Literal

from tests.interop.ports import free_port

Direction = Literal["there", "back"]
"""From who connected to who listens, or the other way."""

BOTH: Final[tuple[Direction, ...]] = ("there", "back")
_CHUNK_SIZE: Final = 65_536
_LOOK_S: Final = 0.02
_LISTENS: Final = "0A"
_MEMBER: Final = re.compile(rb'"member":"([^"]+)"')


class Way:
    """Accepts connections at one address, and makes one to another for each."""

    def __init__(
        self, network: Network, host: str, port: int, targets: tuple[tuple[str, int], ...]
    ) -> None:
        self._network = network
        self.host, self.port = host, port
        self._targets = targets
        self._target = targets[0]
        self._frozen: set[tuple[Direction, str]] = set()
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    # -- what tests do -------------------------------------------------------------------------

    def freeze(self, *directions: Direction, member: str = "") -> None:
        """Let nothing through in these directions (both without any); of connections that one
        member has made, if it is named."""
        self._change(lambda: self._frozen.update((d, member) for d in directions or BOTH))

    def thaw(self) -> None:
        """Let everything through again."""
        self._change(self._frozen.clear)

    def _change(self, change: Callable[[], None]) -> None:
        def do() -> None:
            change()
            self._changed.set()
            self._changed = asyncio.Event()

        self._network.call(do)

    # -- in the network's thread -----------------------------------------------------------------

    def _is_frozen(self, direction: Direction, member: str) -> bool:
        return (direction, "") in self._frozen or (direction, member) in self._frozen

    async def _pass(self, direction: Direction, member: str) -> None:
        while self._is_frozen(direction, member):
            await self._changed.wait()

    async def listen(self, listening: set[tuple[str, int]]) -> None:
        """Listen if a target does."""
        if any(not member for _, member in self._frozen):
            return  # whether somebody listens cannot be seen through a network that is down
        open_targets = [target for target in self._targets if target in listening]
        if open_targets:
            self._target = open_targets[0]
            if self._server is None:
                self._server = await asyncio.start_server(self._accept, self.host, self.port)
        elif self._server is not None:
            self._server.close()
            self._server = None

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for end in BOTH:
            await self._pass(end, "")
        there_reader, there_writer = await asyncio.open_connection(*self._target)
        for each in (writer, there_writer):
            each.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        who = [""]
        pumps = [
            asyncio.ensure_future(self._pump("there", reader, there_writer, who)),
            asyncio.ensure_future(self._pump("back", there_reader, writer, who)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            there_writer.transport.abort()

    async def _pump(
        self,
        direction: Direction,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        who: list[str],
    ) -> None:
        while True:
            try:
                data = await reader.read(_CHUNK_SIZE)
            except OSError:
                data = b""
            if direction == "there" and not who[0] and (found := _MEMBER.search(data)):
                who[0] = found[1].decode()
            await self._pass(direction, who[0])
            if not data:
                return
            writer.write(data)
            await writer.drain()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Network:
    """All ways of a test, in a thread of their own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._ways: list[Way] = []
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="network", daemon=True)

    @contextlib.contextmanager
    def open(self) -> Iterator[Network]:
        self._thread.start()
        try:
            yield self
        finally:
            self.call(self._stop)
            self._thread.join(10)

    def _stop(self) -> None:
        self._is_closing = True

    def way(self, *targets: tuple[str, int], host: str = "127.0.0.1", port: int = 0) -> Way:
        """One more; on a free port, if none is named. Of several targets it leads to the first at
        which somebody listens, as a load balancer does."""
        way = Way(self, host, port or free_port(), targets)
        self.call(lambda: self._ways.append(way))
        return way

    def call(self, change: Callable[[], object]) -> None:
        """Have it done in the network's thread; it is done when this returns."""
        done = threading.Event()

        def do() -> None:
            change()
            done.set()

        self._loop.call_soon_threadsafe(do)
        assert done.wait(10)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._keep())
        self._loop.close()

    async def _keep(self) -> None:
        while not self._is_closing:
            found = listening()
            for way in list(self._ways):
                await way.listen(found)
            await asyncio.sleep(_LOOK_S)
        for way in self._ways:
            await way.close()


def listening() -> set[tuple[str, int]]:
    """Addresses at which somebody listens on this machine (IPv4)."""
    found = set()
    with Path("/proc/net/tcp").open() as lines:
        next(lines)
        for line in lines:
            _, local, _, state, *_ = line.split(None, 4)
            if state != _LISTENS:
                break  # the kernel lists these first
            host, port = local.split(":")
            found.add((socket.inet_ntoa(int(host, 16).to_bytes(4, "little")), int(port, 16)))
    return found
