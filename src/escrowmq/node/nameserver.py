"""One name server: a core and its door."""

from __future__ import annotations

from escrowmq.base.settings import NameServerSettings
from escrowmq.net.clock import SystemClock
from escrowmq.net.disk import FileDisk
from escrowmq.net.shell import Shell, bind
from escrowmq.net.tls import Doors
from escrowmq.node.addresses import joined
from escrowmq.registry.core import RegistryCore


class NameServerNode:
    """A name server that is being opened, open, or closed."""

    def __init__(self, settings: NameServerSettings, *, data: str, host: str, port: int) -> None:
        self._door = bind(host, port)
        self.port = int(self._door.getsockname()[1])
        self.address = joined(host, self.port)
        self._clock = SystemClock()
        self._disk = FileDisk(data)
        self.core = RegistryCore(settings, self._disk, started_ms=self._clock.now_ms())
        self._shell: Shell | None = None

    async def open(self, *, idle_ms: int, doors: Doors) -> None:
        """Let brokers and clients in."""
        self._shell = Shell(
            self.core, self._clock, self._disk, name="nameserver", idle_ms=idle_ms, doors=doors
        )
        await self._shell.listen(self._door)
        self._shell.start()

    async def close(self) -> None:
        """Close the door."""
        if self._shell is not None:
            await self._shell.close()
        self._door.close()
