"""One broker: a core, its store on disk, and its ports."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.measure import MetricFamily
from escrowmq.base.ports import Disk
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.base.wire import Wire
from escrowmq.broker.core import BrokerCore
from escrowmq.errors import UsageError
from escrowmq.lane import native
from escrowmq.net.clock import LocalZone, SystemClock
from escrowmq.net.disk import FileDisk
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.shell import Shell
from escrowmq.net.tls import PortOptions
from escrowmq.node.addresses import (
    advertised_address,
    host_and_port,
    warn_of_advertised_address,
    warn_of_open_access,
)
from escrowmq.node.broker_ports import (
    HA_PORT_OFFSET,
    GroupPorts,
    bind_replication_port,
    bind_vip_port,
)
from escrowmq.node.build import release_with_commit
from escrowmq.node.config import (
    NodeSettings,
    check_text_settings,
    convert_settings,
    read_store_settings,
    warn_of_unknown_keys,
)
from escrowmq.node.connection_settings import ConnectionSettings
from escrowmq.node.grpc_port import make_grpc_front
from escrowmq.node.refused_settings import refuse_unsupported, with_values_of_rocketmq
from escrowmq.node.self_made_certificate import self_signed_tls
from escrowmq.store.commit_log import FOLDER

if TYPE_CHECKING:
    from escrowmq.group.membership import GroupMembership
    from escrowmq.node.metrics_and_health import LoopHealthReader
    from escrowmq.proxy.front import GrpcFront

_log = logging.getLogger(__name__)

_REGISTERING_MAX_S: Final = 24.0
"""How long a starting broker waits for name servers; the same as RocketMQ's."""

_PRESETS = {
    "RocketMQ": {
        "escrowCountUndelivered": "true",
        "escrowAskOriginFirst": "false",
        "escrowMuteAfter": "0",
        "escrowChecksInFlight": "1000000",
    }
}
"""The default values that each escrowPreset sets."""


class BrokerNode:
    """One broker of this process, from its start until it is closed: core, shell and ports."""

    def __init__(  # noqa: PLR0913 - what a process knows and a broker must be told
        self,
        settings: BrokerSettings,
        store: StoreSettings,
        *,
        data: str,
        host: str,
        port: int,
        log: str = "",
        accounts: str = "",
        signs_as: tuple[str, str] | None = None,
        operator: tuple[str, str] | None = None,
        grpc_socket: socket.socket | None = None,
        replica: ReplicaSettings | None = None,
        membership: GroupMembership | None = None,
        group_ports: GroupPorts | None = None,
    ) -> None:
        """`membership` and `group_ports` (the listening sockets, bound already) are given only for
        a member of a group."""
        self._host = host
        self._has_accounts = settings.acl_enabled or settings.authenticates
        self._socket = bind_port(host, port) if group_ports is None else group_ports.client_port()
        self._grpc_socket = grpc_socket
        self.port = int(self._socket.getsockname()[1])
        self._fast_socket = (
            bind_vip_port(host, port) if group_ports is None else group_ports.vip_port()
        )
        advertised = settings.advertised_host
        self._is_slave = replica is not None and replica.is_slave
        self._membership = membership
        self._letting_in: asyncio.Task[None] | None = None
        ha_port = self._bind_replication_port(replica, port=port, group_ports=group_ports)
        ha_host = replica.ha_host if replica is not None else ""
        self._clock = SystemClock()
        self._disk = FileDisk(data, elsewhere={FOLDER: log} if log else None)
        self.core = BrokerCore(
            self._disk if membership is None else _watched_disk(self._disk, membership),
            settings,
            store,
            address=(advertised, self.port),
            ha_address=host_and_port(ha_host or advertised, ha_port),
            chance=random.SystemRandom(),
            mark=str(os.getpid()),
            boot=boot_id(),
            accounts=FileDisk(accounts) if settings.acl_enabled and accounts else None,
            zone=LocalZone(),
            signs_as=signs_as,
            replica=replica,
            membership=membership,
        )
        self.core.broker.identity.release = self.build = release_with_commit()
        self.core.broker.identity.operator = operator
        self.grpc_port = 0 if grpc_socket is None else int(grpc_socket.getsockname()[1])
        if grpc_socket is not None:
            self._front = self._grpc_front(advertised, store.body_size_max)
        self._flushing = "SYNC_FLUSH" if store.is_sync_flush else "ASYNC_FLUSH"
        self._shell: Shell | None = None
        self.was_closed_durably = False
        """Whether the store was open, and is closed with all of its log durable."""
        self.labels = {"cluster": settings.cluster, "node_id": settings.name, "node_type": "broker"}

    def _grpc_front(self, host: str, body_size_max: int) -> GrpcFront:
        return make_grpc_front(
            self.core,
            host=host,
            port=self.grpc_port,
            body_size_max=body_size_max,
            is_of_group=self._membership is not None,
        )

    def _bind_replication_port(
        self, replica: ReplicaSettings | None, *, port: int, group_ports: GroupPorts | None
    ) -> int:
        """Bind the replication port if this is a master; return the port's number."""
        self._ha_socket: socket.socket | None = None
        if group_ports is not None and self._membership is not None:
            if self._membership.leads is not None:
                self._ha_socket = group_ports.bind_replication_port()
            return group_ports.ha_port
        if replica is None or replica.is_slave:
            return self.port + HA_PORT_OFFSET
        self._ha_socket = bind_replication_port(replica, host=self._host, port=port)
        return int(self._ha_socket.getsockname()[1])

    async def open(
        self, *, idle_ms: int, port_options: PortOptions, ports: ConnectionSettings, spin_us: int
    ) -> None:
        """Load the store, then accept clients."""
        began_s = time.monotonic()
        self._clock.continue_from(self.core.open(self._clock.now_ms()))
        _log.info(
            "broker %s of %s, EscrowMQ %s, has opened %s within %.1f s (%s)",
            self.labels["node_id"],
            self.labels["cluster"],
            self.build,
            self._disk.root,
            time.monotonic() - began_s,
            self._flushing,
        )
        if native.why_plain:
            _log.info("the fast path runs in plain Python only: %s", native.why_plain)
        warn_of_open_access(self._host, has_accounts=self._has_accounts)
        self._shell = Shell(
            self.core,
            self._clock,
            self._disk,
            name="broker",
            idle_ms=idle_ms,
            port_options=port_options,
            spin_s=spin_us / 1e6,
        )
        self._clock.set_leap_listener(self._shell.clock_leapt)
        self._ports = ports
        membership = self._membership
        if self._ha_socket is not None:
            wire = Wire.HA if membership is None else Wire.GROUP
            tls = None if membership is None else port_options.members
            await self._shell.listen(ListeningPort(self._ha_socket, (wire,), tls, has_tls=False))
        if membership is None or membership.leads is None:
            await self._accept_clients()
        else:
            membership.set_on_ready(self._accept_clients_soon)
        self._shell.start()

    def _accept_clients_soon(self) -> None:
        """Start to accept clients, in a task. A group's master calls this as soon as messages that
        consumers see will survive the next fail-over."""
        self._letting_in = asyncio.get_running_loop().create_task(self._accept_clients())
        self._letting_in.add_done_callback(self._end_without_ports)

    def _end_without_ports(self, task: asyncio.Task[None]) -> None:
        """End a group's master that could not open all ports for clients: another member can. The
        group sees that it lives, and would let it lead on."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        _log.critical("this member stops: it cannot open its ports for clients", exc_info=error)
        membership = self._membership
        if membership is not None and membership.on_failure is not None:
            membership.on_failure()

    async def _accept_clients(self) -> None:
        """Open the ports for clients."""
        assert self._shell is not None
        await self._shell.listen(ListeningPort(self._socket))
        if self._fast_socket is not None:
            await self._shell.listen(ListeningPort(self._fast_socket))
        if self._grpc_socket is not None:
            # To make a certificate takes a while, in which the other ports serve.
            tls = await asyncio.to_thread(
                self_signed_tls, self._ports, data=self._disk.root, names=self._own_names()
            )
            await self._shell.listen(ListeningPort(self._grpc_socket, (Wire.GRPC,), tls))

    def now_ms(self) -> int:
        """Return the time by the broker's clock."""
        return self._clock.now_ms()

    def perform_effects(self) -> None:
        """Perform the effects that the core has queued. Call it after a change of the core that was
        not caused by an input."""
        if self._shell is not None:
            self._shell.perform_effects()

    def _own_names(self) -> tuple[str, ...]:
        """Return the names by which clients may address this machine."""
        advertised = self.core.broker.settings.advertised_host
        return tuple(
            filter(None, ("localhost", "127.0.0.1", "::1", advertised, socket.gethostname()))
        )

    def open_ports(self, host: str) -> dict[str, str]:
        """Return the addresses of the open ports, for the ready line."""
        found = {"broker": host_and_port(host, self.port)}
        if self.grpc_port:
            found["grpc"] = host_and_port(host, self.grpc_port)
        if self._ha_socket is not None:
            found["ha"] = host_and_port(*self._ha_socket.getsockname()[:2])
        return found

    def health_reader(self, loop: asyncio.AbstractEventLoop) -> LoopHealthReader:
        """Return an object with which other threads can read the broker's health."""
        from escrowmq.node.metrics_and_health import LoopHealthReader

        return LoopHealthReader(
            loop, self.measure, labels=self.labels, refusal=self.unready_reason, version=self.build
        )

    @property
    def metrics_instance(self) -> str:
        """The broker's name, as a label of metrics."""
        return self.labels["node_id"]

    def write_refusal_reason(self) -> str:
        """The reason why the broker accepts no messages; empty if it does."""
        return self.core.write_refusal_reason()

    def unready_reason(self) -> str:
        """The reason why this broker is not ready; empty if it is."""
        if not self.core.registration.is_registered:
            return "not registered: no name server has taken this broker's registration yet"
        refusal = self.write_refusal_reason()
        return f"{'not copying' if self._is_slave else 'read-only'}: {refusal}" if refusal else ""

    def measure(self) -> list[MetricFamily]:
        """Return the broker's metrics."""
        assert self._shell is not None
        shell = self._shell
        spans = [*shell.alarm.turns.metric_families(), *shell.syncs.metric_families()]
        return [*self.core.measure(self._clock.now_ms()), *spans]

    async def wait_until_registered(self, stop: asyncio.Event) -> None:
        """Wait, for a limited time, until each name server has accepted the registration or failed
        once. Clients that start after that find a route."""
        outcome, registration = asyncio.Event(), self.core.registration

        def check_outcome() -> None:
            if registration.has_tried_all:
                outcome.set()

        registration.on_outcome = check_outcome
        check_outcome()
        waits = [asyncio.create_task(event.wait()) for event in (outcome, stop)]
        await asyncio.wait(waits, timeout=_REGISTERING_MAX_S, return_when=asyncio.FIRST_COMPLETED)
        for each in waits:
            each.cancel()

    async def close(self) -> None:
        """Unregister the broker, save its files, and close its ports and its store."""
        if self._letting_in is not None:
            await asyncio.gather(self._letting_in, return_exceptions=True)
        try:
            if self._shell is not None:
                await self._close_store(self._shell)
        finally:
            self._socket.close()
            for listener in (self._fast_socket, self._grpc_socket, self._ha_socket):
                if listener is not None:
                    listener.close()
            if self._membership is not None:
                self._disk.close()  # the next broker of the member opens the folder again

    async def _close_store(self, shell: Shell) -> None:
        self.core.unregister()
        if self._grpc_socket is not None:
            self._front.drain()
        shell.perform_effects()
        await shell.close()
        self.core.close(self._clock.now_ms())
        store = self.core.broker.store
        self.was_closed_durably = store.ends.durable == store.end_offset
        _log.info("the store is closed")


def _watched_disk(disk: FileDisk, membership: GroupMembership) -> Disk:
    """Return a disk that also reports the files written to it, so that a group's master sends
    changed tables to its copies. For a copy, return the disk itself."""
    if membership.leads is None:
        return disk
    from escrowmq.broker.replication.table_marks import WatchedDisk

    return WatchedDisk(disk)


def boot_id() -> str:
    """Return the id of the machine's current boot; empty if the system does not provide it. While
    it stays the same, a killed process has lost nothing that it wrote."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def read_broker_settings(
    found: dict[str, str], *, source: str, name: str, name_servers: str | None, host: str
) -> tuple[BrokerSettings, StoreSettings, NodeSettings]:
    """Return all settings of a broker process; `name` is the default name of the broker."""
    refuse_unsupported(found, source=source)
    found = with_values_of_rocketmq(found, source=source)
    node = convert_settings(NodeSettings, found, source=source)
    if node.exporter not in ("DISABLE", "PROM"):
        raise UsageError(
            f"{source}: metricsExporterType={node.exporter}: DISABLE or PROM is expected"
        )
    preset = convert_settings(BrokerSettings, found, source=source).preset
    settings = convert_settings(BrokerSettings, _PRESETS.get(preset, {}) | found, source=source)
    store = read_store_settings(found, node, source=source)
    if "brokerName" not in found:
        settings.name = name
    if name_servers:
        settings.name_servers = name_servers
    settings.advertised_host = advertised_address(host, chosen=found.get("brokerIP1"))
    check_text_settings(settings, store, source=source)
    warn_of_unknown_keys(found, source=source)
    warn_of_advertised_address(host, settings.advertised_host, is_chosen="brokerIP1" in found)
    return settings, store, node
