"""Brokers: list them, show them, change their settings."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from escrowmq.base.codes import Request
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.core.unreadable_answers import convert_parse_errors
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.routes import DepartedBroker
from escrowmq.errors import EscrowMQError, UsageError


class BrokerInfo(msgspec.Struct, kw_only=True, rename="camel"):
    """One broker process."""

    name: str
    cluster: str
    id: int
    """The broker's id: 0 for the master."""
    address: str
    version: str = ""
    """The RocketMQ release whose protocol the broker speaks. Empty if the broker does not answer,
    or does not report it."""
    build: str = ""
    """The build of EscrowMQ: release and commit. Empty for RocketMQ's brokers."""
    gone_ms: int = 0
    """For a broker that is no longer registered, the time of its last registration; otherwise 0."""
    was_stopped: bool = False
    """Whether the broker unregistered itself, as it does when it is stopped."""


class ChangedSetting(msgspec.Struct, kw_only=True, rename="camel"):
    """A setting whose value a request has changed since the broker's start."""

    name: str
    value: str
    before: str
    """The value with which the broker was started."""
    who: str = ""
    """Who changed the setting: `account@address`, or only the address; empty if that was not
    recorded."""
    at_ms: int = 0


class _SettingChange(msgspec.Struct, rename="camel"):
    instead_of: str
    value: str
    who: str = ""
    at_ms: int = 0


class ConnectedSlave(msgspec.Struct, kw_only=True, rename="camel"):
    """A slave that copies a master's log, as the master sees it."""

    address: str
    is_in_sync: bool
    behind_size: int
    """Bytes of the log that the slave has not yet confirmed."""
    bytes_per_s: int


class ConnectedProducer(msgspec.Struct, kw_only=True, rename="camel"):
    """A producer that is connected to a broker."""

    group: str
    client_id: str
    address: str
    language: str
    broker: str


class _Producer(msgspec.Struct, rename="camel"):
    """A producer's connection in a broker's answer (RocketMQ's ProducerInfo)."""

    client_id: str
    language: str | int = ""
    remote_ip: str = msgspec.field(default="", name="remoteIP")


class _Producers(msgspec.Struct):
    """A broker's answer with all its producers, by group (RocketMQ's ProducerTableInfo)."""

    data: dict[str, list[_Producer]] = {}


class _SlaveConnection(msgspec.Struct):
    """A slave's connection in a master's answer (RocketMQ's HAConnectionRuntimeInfo)."""

    addr: str = ""
    diff: int = 0
    in_sync: bool = msgspec.field(default=False, name="inSync")
    bytes_per_s: int = msgspec.field(default=0, name="transferredByteInSecond")


class _HaStatus(msgspec.Struct):
    """A master's answer about its slaves (RocketMQ's HARuntimeInfo)."""

    slaves: list[_SlaveConnection] = msgspec.field(default_factory=list, name="haConnectionInfo")


class _StringTable(msgspec.Struct):
    table: dict[str, str] = {}


class Brokers:
    """Brokers and their settings: `Admin.brokers`."""

    def __init__(self, cluster: ClusterCalls) -> None:
        self._cluster = cluster

    async def gone(self) -> list[BrokerInfo]:
        """Return the brokers that left within the last hour and have not come back, as the name
        server remembers. RocketMQ's name servers remember none; ours forgets them when it is
        restarted."""
        return [_to_broker_info(one) for one in await self._cluster.gone()]

    async def missing(self) -> list[BrokerInfo]:
        """Return the brokers that left within the last hour and that no broker of the same name
        replaces. Answers of other brokers lack their data."""
        return [_to_broker_info(one) for one in await self._cluster.missing()]

    async def all(self) -> list[BrokerInfo]:
        """Return all brokers that the name server knows, slaves too, sorted."""
        self._cluster.instance.check_usable()
        info = await self._cluster.instance.names.fetch_brokers()
        found = [
            BrokerInfo(name=name, cluster=data.cluster or "", id=broker_id, address=address)
            for name, data in sorted(info.broker_addr_table.items())
            for broker_id, address in sorted(data.broker_addrs.items())
        ]
        for one in found:
            one.version, one.build = await self._protocol_and_build(one.address)
        return found

    async def runtime(self, broker: str) -> dict[str, str]:
        """Return a broker's runtime metrics, under RocketMQ's names."""
        found = await self._cluster.ask_decoded(
            await self._address(broker), Request.GET_BROKER_RUNTIME_INFO, _StringTable
        )
        return dict(sorted(found.table.items()))

    async def producers(self) -> list[ConnectedProducer]:
        """Return the producers that are connected to any broker, by group. Brokers do not know
        which topics a producer sends to."""
        found: list[ConnectedProducer] = []
        for name, address in (await self._cluster.masters()).items():
            table = await self._cluster.ask_decoded(
                address, Request.GET_ALL_PRODUCER_INFO, _Producers
            )
            found += [
                ConnectedProducer(
                    group=self._cluster.without_namespace(group), client_id=one.client_id,
                    address=one.remote_ip.removeprefix("/"), language=str(one.language),
                    broker=name,
                )
                for group, several in table.data.items() for one in several
            ]  # fmt: skip
        return sorted(found, key=lambda one: (one.group, one.client_id, one.broker))

    async def replicas(self, broker: str) -> list[ConnectedSlave]:
        """Return the slaves that copy a broker's log now, sorted by address; empty if it has
        none."""
        status = await self._cluster.ask_decoded(
            await self._address(broker), Request.GET_BROKER_HA_STATUS, _HaStatus
        )
        found = [
            ConnectedSlave(
                address=one.addr, is_in_sync=one.in_sync, behind_size=one.diff,
                bytes_per_s=one.bytes_per_s,
            )
            for one in status.slaves
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.address)

    async def config(self, broker: str) -> dict[str, str]:
        """Return a broker's settings, under RocketMQ's names."""
        address = await self._address(broker)
        reply = await self._cluster.ask(address, Request.GET_BROKER_CONFIG)
        with convert_parse_errors(address, Request.GET_BROKER_CONFIG):
            text = reply.body.decode()
        lines = (line.partition("=") for line in text.splitlines())
        return {name.strip(): value.strip() for name, mark, value in lines if mark}

    async def changes(self, broker: str) -> list[ChangedSetting]:
        """Return the settings whose values were changed by requests since the broker's start,
        sorted. Secrets are left out, and so are settings that were changed back; the broker's audit
        log has every change. RocketMQ's brokers do not report this."""
        address = await self._address(broker)
        reply = await self._cluster.ask(address, Request.GET_BROKER_CONFIG)
        text = (reply.ext or {}).get("escrowChanges", "{}")
        with convert_parse_errors(address, Request.GET_BROKER_CONFIG):
            found = decode_body(dict[str, _SettingChange], text.encode())
        return [
            ChangedSetting(
                name=name, value=one.value, before=one.instead_of, who=one.who, at_ms=one.at_ms
            )
            for name, one in sorted(found.items())
        ]

    async def configure(self, broker: str, settings: Mapping[str, object]) -> None:
        """Change settings of a running broker, all or none. A refusal names the setting."""
        lines = []
        for name, value in settings.items():
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if not name or any(mark in f"{name}{text}" for mark in "\r\n") or "=" in name:
                raise UsageError(f"{name!r}={text!r} cannot be a setting of a broker")
            lines.append(f"{name}={text}\n")
        address = await self._address(broker)
        await self._cluster.ask(address, Request.UPDATE_BROKER_CONFIG, {}, "".join(lines).encode())

    async def _address(self, broker: str) -> str:
        return (await self._cluster.masters(broker))[broker]

    async def _protocol_and_build(self, address: str) -> tuple[str, str]:
        try:
            found = await self._cluster.ask_decoded(
                address, Request.GET_BROKER_RUNTIME_INFO, _StringTable
            )
        except EscrowMQError:
            return "", ""
        return found.table.get("brokerVersionDesc", ""), found.table.get("escrowVersion", "")


def _to_broker_info(one: DepartedBroker) -> BrokerInfo:
    return BrokerInfo(
        name=one.name,
        cluster=one.cluster,
        id=one.id,
        address=one.address,
        gone_ms=one.since_ms,
        was_stopped=one.has_said_so,
    )
