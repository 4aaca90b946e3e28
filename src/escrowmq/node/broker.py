"""One broker: a core, its store on disk, and its ports."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING

from escrowmq.base.broker_settings import BrokerSettings, StoreSettings
from escrowmq.base.measure import Family
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.wire import Wire
from escrowmq.broker.core import BrokerCore
from escrowmq.errors import ConnectFailed, UsageError
from escrowmq.lane import native
from escrowmq.net.admission import bind
from escrowmq.net.clock import LocalZone, SystemClock
from escrowmq.net.disk import FileDisk
from escrowmq.net.listener import Listener
from escrowmq.net.shell import Shell
from escrowmq.net.tls import PortOptions
from escrowmq.node.addresses import advertised, joined, tell_advertised, tell_open
from escrowmq.node.build import build_name
from escrowmq.node.config import NodeSettings, check_texts, convert, store_settings, tell_unknown
from escrowmq.node.grpc_port import speak
from escrowmq.node.port_settings import PortSettings
from escrowmq.node.refused_settings import as_rocketmq_takes, refuse_unserved
from escrowmq.node.self_made_certificate import self_made_tls
from escrowmq.store.commit_log import FOLDER

if TYPE_CHECKING:
    from escrowmq.node.metrics_port import Exporter
    from escrowmq.node.vitals import Vitals

_log = logging.getLogger(__name__)
_FAST_BELOW = 2
HA_ABOVE = 1
"""Slaves connect to the port so far above that of clients, as at RocketMQ."""

_PRESETS = {
    "RocketMQ": {
        "escrowCountUndelivered": "true",
        "escrowAskOriginFirst": "false",
        "escrowMuteAfter": "0",
        "escrowChecksInFlight": "1000000",
    }
}
"""The settings that escrowPreset sets by default."""


class BrokerNode:
    """A broker that is being opened, open, or closed."""

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
        grpc_door: socket.socket | None = None,
        replica: ReplicaSettings | None = None,
    ) -> None:
        self._host = host
        self._has_accounts = settings.acl_enabled or settings.authenticates
        self._door = bind(host, port)
        self._grpc_door = grpc_door
        self.port = int(self._door.getsockname()[1])
        self._fast_door = _bind_fast(host, port)
        told = settings.advertised_host
        self._is_slave = replica is not None and replica.is_slave
        self._ha_door: socket.socket | None = None
        ha_port = self.port + HA_ABOVE
        if replica is not None and not replica.is_slave:
            self._ha_door = bind_ha(replica, host=host, port=port)
            ha_port = int(self._ha_door.getsockname()[1])
        ha_host = replica.ha_host if replica is not None else ""
        self._clock = SystemClock()
        self._disk = FileDisk(data, elsewhere={FOLDER: log} if log else None)
        self.core = BrokerCore(
            self._disk,
            settings,
            store,
            address=(told, self.port),
            ha_address=joined(ha_host or told, ha_port),
            chance=random.SystemRandom(),
            mark=str(os.getpid()),
            boot=_boot_id(),
            accounts=FileDisk(accounts) if settings.acl_enabled and accounts else None,
            zone=LocalZone(),
            signs_as=signs_as,
            replica=replica,
        )
        self.core.broker.identity.release = self._build = build_name()
        self.grpc_port = 0
        if grpc_door is not None:
            self.grpc_port = int(grpc_door.getsockname()[1])
            size_max = store.body_size_max
            self._front = speak(self.core, host=told, port=self.grpc_port, body_size_max=size_max)
        self._flushing = "SYNC_FLUSH" if store.is_sync_flush else "ASYNC_FLUSH"
        self._shell: Shell | None = None
        self._exporter: Exporter | None = None
        self._labels = {
            "cluster": settings.cluster,
            "node_type": "broker",
            "node_id": settings.name,
        }

    async def open(
        self, *, idle_ms: int, doors: PortOptions, ports: PortSettings, spin_us: int
    ) -> None:
        """Load the store, then accept clients."""
        began_s = time.monotonic()
        self._clock.go_on_from(self.core.open(self._clock.now_ms()))
        self._clock.tell_leaps(self.core.clock_leapt)
        _log.info(
            "broker %s of %s, EscrowMQ %s, has opened %s within %.1f s (%s)",
            self._labels["node_id"],
            self._labels["cluster"],
            self._build,
            self._disk.root,
            time.monotonic() - began_s,
            self._flushing,
        )
        if native.why_plain:
            _log.info("the fast path runs in plain Python only: %s", native.why_plain)
        tell_open(self._host, has_accounts=self._has_accounts)
        self._shell = Shell(
            self.core,
            self._clock,
            self._disk,
            name="broker",
            idle_ms=idle_ms,
            doors=doors,
            spin_s=spin_us / 1e6,
        )
        await self._shell.listen(Listener(self._door))
        if self._fast_door is not None:
            await self._shell.listen(Listener(self._fast_door))
        if self._grpc_door is not None:
            tls = self_made_tls(ports, data=self._disk.root, names=self._names())
            await self._shell.listen(Listener(self._grpc_door, (Wire.GRPC,), tls))
        if self._ha_door is not None:
            await self._shell.listen(Listener(self._ha_door, (Wire.HA,), has_tls=False))
        self._shell.start()

    def _names(self) -> tuple[str, ...]:
        """What clients may call this machine by."""
        told = self.core.broker.settings.advertised_host
        return tuple(filter(None, ("localhost", "127.0.0.1", "::1", told, socket.gethostname())))

    def doors(self, host: str) -> dict[str, str]:
        """The open ports, for the ready line."""
        found = {"broker": joined(host, self.port)}
        if self.grpc_port:
            found["grpc"] = joined(host, self.grpc_port)
        if self._ha_door is not None:
            found["ha"] = joined(*self._ha_door.getsockname()[:2])
        return found

    def export(self, node: NodeSettings, *, host: str) -> dict[str, str]:
        """Serve metrics if the settings say so; return the open port."""
        if node.exporter != "PROM":
            return {}
        from escrowmq.node.metrics_port import Exporter

        host = node.exporter_host or host
        self._exporter = Exporter(
            self._measure,
            labels=self._labels,
            host=host,
            port=node.exporter_port,
            refusal=self.core.refusal,
            version=self._build,
        )
        return {"metrics": joined(host, self._exporter.port)}

    def vitals(self, loop: asyncio.AbstractEventLoop) -> Vitals:
        """How the broker on this loop is, for other threads."""
        from escrowmq.node.vitals import Vitals

        return Vitals(
            loop, self._measure, labels=self._labels, refusal=self._unready, version=self._build
        )

    def _unready(self) -> str:
        if not self.core.registration.is_known:
            return "not registered: no name server has taken this broker's registration yet"
        refusal = self.core.refusal()
        return f"{'not copying' if self._is_slave else 'read-only'}: {refusal}" if refusal else ""

    def _measure(self) -> list[Family]:
        assert self._shell is not None
        shell = self._shell
        spans = [*shell.alarm.turns.families(), *shell.syncs.families()]
        return [*self.core.measure(self._clock.now_ms()), *spans]

    async def registered(self) -> None:
        """Wait until a name server knows this broker (or none was configured)."""
        known = asyncio.Event()
        self.core.registration.on_known = known.set
        if not self.core.registration.is_known:
            await known.wait()

    async def close(self) -> None:
        """Unregister, save, close."""
        if self._exporter is not None:
            await self._exporter.close()
        if self._shell is not None:
            self.core.farewell()
            if self._grpc_door is not None:
                self._front.drain()
            self._shell.perform()
            await self._shell.close()
            self.core.close(self._clock.now_ms())
            _log.info("the store is closed")
        self._door.close()
        for door in (self._fast_door, self._grpc_door, self._ha_door):
            if door is not None:
                door.close()


def _bind_fast(host: str, port: int) -> socket.socket | None:
    """The second port of RocketMQ's brokers, two below the first, used by clients with the "VIP
    channel". Not opened if the system chose the first port."""
    if port <= _FAST_BELOW:
        return None
    try:
        return bind(host, port - _FAST_BELOW)
    except ConnectFailed as error:
        _log.warning("no fast port: %s", error)
        return None


def bind_ha(replica: ReplicaSettings, *, host: str, port: int) -> socket.socket:
    """The port, as RocketMQ chooses it: the one behind that of clients. Any free one, where the
    system chose that as well."""
    wanted = replica.ha_port or (port + HA_ABOVE if port else 0)
    return bind(replica.ha_bind or host, wanted)


def _boot_id() -> str:
    """The current boot of the machine: if it is the same as before, a killed process has lost
    nothing that it wrote. Empty if the system does not provide it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def broker_settings(
    found: dict[str, str], *, source: str, name: str, name_servers: str | None, host: str
) -> tuple[BrokerSettings, StoreSettings, NodeSettings]:
    """All settings of a broker process; `name` is the default name of the broker."""
    refuse_unserved(found, source=source)
    found = as_rocketmq_takes(found, source=source)
    node = convert(NodeSettings, found, source=source)
    if node.exporter not in ("DISABLE", "PROM"):
        raise UsageError(f"{source}: metricsExporterType={node.exporter}: DISABLE or PROM is there")
    preset = convert(BrokerSettings, found, source=source).preset
    settings = convert(BrokerSettings, _PRESETS.get(preset, {}) | found, source=source)
    store = store_settings(found, node, source=source)
    if "brokerName" not in found:
        settings.name = name
    if name_servers:
        settings.name_servers = name_servers
    settings.advertised_host = advertised(host, chosen=found.get("brokerIP1"))
    check_texts(settings, store, source=source)
    tell_unknown(found, source=source)
    tell_advertised(host, settings.advertised_host, is_chosen="brokerIP1" in found)
    return settings, store, node
