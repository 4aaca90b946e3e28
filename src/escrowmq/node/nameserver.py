"""One name server: a core and its port."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import msgspec

from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.net.clock import SystemClock
from escrowmq.net.disk import FileDisk
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.shell import Shell
from escrowmq.net.tls import PortOptions
from escrowmq.node.addresses import host_and_port
from escrowmq.node.build import release_with_commit
from escrowmq.node.config import NodeSettings
from escrowmq.registry.core import RegistryCore
from escrowmq.registry.guard import RegistryGuard

if TYPE_CHECKING:
    from escrowmq.node.metrics_port import MetricsServer


class GuardSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The accounts that a name server knows. They decide which clients may change its data."""

    settings: NameServerGuardSettings
    accounts: str
    """The folder with plain_acl.yml."""
    users: str
    """The folder with config/auth.json, that is, a broker's data folder."""
    own: tuple[str, str] | None = None
    """Name and secret of the broker in the same process."""

    def make_guard(self) -> RegistryGuard:
        """Make the guard; it reads the folders if access control is on."""
        settings = self.settings
        return RegistryGuard(
            settings,
            accounts=FileDisk(self.accounts) if settings.acl_enabled else None,
            users=FileDisk(self.users) if settings.authenticates else None,
            own=self.own,
            chance=random.SystemRandom(),
        )


class NameServerNode:
    """A name server, from opening to closing."""

    def __init__(
        self, settings: NameServerSettings, *, data: str, host: str, port: int, guard: GuardSettings
    ) -> None:
        self._socket = bind_port(host, port)
        self.port = int(self._socket.getsockname()[1])
        self.address = host_and_port(host, self.port)
        self._clock = SystemClock()
        self._disk = FileDisk(data)
        self.core = RegistryCore(
            settings, self._disk, started_ms=self._clock.now_ms(), guard=guard.make_guard()
        )
        self.build = release_with_commit()
        self._shell: Shell | None = None
        self._exporter: MetricsServer | None = None

    async def open(self, *, idle_ms: int, port_options: PortOptions) -> None:
        """Accept connections of brokers and clients."""
        self._shell = Shell(
            self.core,
            self._clock,
            self._disk,
            name="nameserver",
            idle_ms=idle_ms,
            port_options=port_options,
        )
        self._clock.set_leap_listener(self._shell.clock_leapt)
        await self._shell.listen(ListeningPort(self._socket))
        self._shell.start()

    def export_metrics(self, node: NodeSettings, *, host: str, is_alone: bool) -> dict[str, str]:
        """Serve metrics if the settings say so; return the open port. Beside a broker, the name
        server needs a port of its own; alone, it uses the broker's settings."""
        port = node.names_exporter_port
        if port < 0 and is_alone and node.exporter == "PROM":
            port = node.exporter_port
        if port < 0:
            return {}
        from escrowmq.node.metrics_port import MetricsServer

        host = node.exporter_host or host
        self._exporter = MetricsServer(
            self.core.measure,
            labels={"node_type": "nameserver", "node_id": self.address},
            host=host,
            port=port,
            version=self.build,
            setting="escrowNameServerMetricsPort",
        )
        return {"nameserver_metrics": host_and_port(host, self._exporter.port)}

    async def close(self) -> None:
        """Close the port and all connections."""
        if self._exporter is not None:
            await self._exporter.close()
        if self._shell is not None:
            await self._shell.close()
        self._socket.close()
