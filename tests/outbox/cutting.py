"""A way to PostgreSQL that is cut at the COMMIT of an order: before it arrives, or before its
answer does."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Final

ORDER: Final = b"INSERT INTO orders"
COMMIT: Final = b"COMMIT"


class Cutter:
    """Forwards connections from a port to PostgreSQL's socket, on a thread of its own. `cuts` says
    where the next COMMIT is cut on a connection that has ordered something: "before", "after" or
    not at all. Others commit what they answered to the broker's checks."""

    def __init__(self, folder: str) -> None:
        self._socket = f"{folder}/.s.PGSQL.5432"
        self.cuts = ""
        self.port = 0
        self._ready = threading.Event()
        self._end: Callable[[], object] = lambda: None
        # Whatever is open at the end is cancelled and waited for.
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        self._ready.wait(30)

    def close(self) -> None:
        """End it."""
        self._end()
        self._thread.join(30)

    async def _serve(self) -> None:
        stop, loop = asyncio.Event(), asyncio.get_running_loop()
        self._end = lambda: loop.call_soon_threadsafe(stop.set)
        server = await asyncio.start_server(self._take, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await stop.wait()
        server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_unix_connection(self._socket)
        is_cut = asyncio.Event()

        async def up() -> None:
            has_ordered = False
            while data := await reader.read(65_536):
                has_ordered = has_ordered or ORDER in data
                if self.cuts and has_ordered and COMMIT in data:
                    cuts, self.cuts = self.cuts, ""
                    is_cut.set()
                    if cuts == "before":
                        writer.close()
                        return
                ours.write(data)
                await ours.drain()

        async def down() -> None:
            while data := await theirs.read(65_536):
                if is_cut.is_set():
                    return
                writer.write(data)
                await writer.drain()

        with contextlib.suppress(OSError):
            tasks = [asyncio.create_task(up()), asyncio.create_task(down())]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task
        for each in (writer, ours):
            each.close()
            with contextlib.suppress(OSError):
                await each.wait_closed()
