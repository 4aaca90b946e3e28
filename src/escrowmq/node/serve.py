"""Runs the servers that the commands start: embedded, name server alone, broker alone."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from pathlib import Path

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.errors import UsageError
from escrowmq.net.tls import PortOptions
from escrowmq.node import config
from escrowmq.node.addresses import ANY, LOOPBACK, host_and_port
from escrowmq.node.broker import BrokerNode, read_broker_settings
from escrowmq.node.broker_factory import BrokerFactory
from escrowmq.node.broker_http_port import BrokerHttpPort
from escrowmq.node.connection_settings import ConnectionSettings, make_port_options
from escrowmq.node.file_permissions import warn_of_wide_permissions
from escrowmq.node.grpc_port import DEFAULT_GRPC_PORT, bind_grpc
from escrowmq.node.metrics_exports import MetricsExports
from escrowmq.node.nameserver import GuardSettings, NameServerNode
from escrowmq.node.process import freeze_loaded_objects, print_ready_line, run_until_signal

_log = logging.getLogger(__name__)

NAMESERVER_PORT = 9876
BROKER_PORT = 10911
_SECRET_SIZE = 32


EMBEDDED_NAME = "broker-a"
"""The embedded broker's default name. It does not depend on the host, because the data folder may
move to another."""


class ServeOptions(msgspec.Struct, kw_only=True):
    """The options of the command line that start a server."""

    data: str | None = None
    host: str | None = None
    port: int | None = None
    grpc_port: int | None = None
    http_port: int | None = None
    console_password_file: str | None = None
    console_viewer_file: str | None = None
    console_proxies: tuple[str, ...] = ()
    nameserver_host: str | None = None
    nameserver_port: int | None = None
    name_servers: str | None = None
    authority: str | None = None
    file: str | None = None
    pairs: list[str] = []

    @property
    def source(self) -> str:
        """Where the settings come from, for messages."""
        return self.file or "--set"

    def gather_settings(self) -> dict[str, str]:
        """Return the settings of the file and of `--set`."""
        return config.gather_settings(self.file, self.pairs)


def _data_folder(options: ServeOptions, node: config.NodeSettings) -> str:
    return options.data or node.data or str(Path.home() / "store")


def serve_embedded(options: ServeOptions) -> int:
    """Run a name server and a broker in one process, with one data folder."""
    found = options.gather_settings()
    host = options.host or found.get("bindAddress") or LOOPBACK
    _warn_of_name_server_setting(options, found)
    names = config.convert_settings(NameServerSettings, found, source=options.source)
    settings, store, node = read_broker_settings(
        found, source=options.source, name=EMBEDDED_NAME, name_servers=None, host=host
    )
    idle_ms = node.idle_s * 1000
    ports, port_options = _port_policy(options, found, calls_itself=True)
    data = _data_folder(options, node)
    accounts, operator = config.accounts_folder(node, data=data), _own_account(settings)
    own = _own_account(settings)  # another one, since the console signs for other brokers too
    names_host = options.nameserver_host or host
    guard = _guard_settings(options, found, accounts=accounts, users=data, own=own)
    registry = _make_embedded_nameserver(options, names, data=data, host=names_host, guard=guard)
    local = LOOPBACK if names_host in ANY else names_host
    settings.name_servers = host_and_port(local, registry.port)
    _warn_of_wide_permissions(options, found, node, data=data)
    broker = BrokerNode(
        settings,
        store,
        data=data,
        host=host,
        port=_client_port(options, node),
        log=node.log,
        accounts=accounts,
        signs_as=own,
        operator=operator,
        grpc_socket=_bind_grpc_port(options, found, node, host=host, is_embedded=True),
        replica=_embedded_replica_settings(options, found),
    )
    has_default, exports = _client_port(options, node) != 0, MetricsExports()
    http = BrokerHttpPort(
        options, found, node, host=host, has_default=has_default, operator=operator
    )

    async def main(stop: asyncio.Event) -> None:
        await registry.open(idle_ms=idle_ms, port_options=port_options)
        try:
            await broker.open(
                idle_ms=idle_ms, port_options=port_options, ports=ports, spin_us=node.spin_us
            )
            await broker.wait_until_registered(stop)
            freeze_loaded_objects()
            more = http.open(broker, settings, data=data)
            more |= exports.open(broker, node, host=host)
            more |= registry.export_metrics(node, host=names_host, is_alone=False)
            print_ready_line(nameserver=registry.address, **broker.open_ports(host), **more)
            await stop.wait()
        finally:
            await http.close()
            await exports.close()
            await broker.close()
            await registry.close()

    return run_until_signal(main)


def _make_embedded_nameserver(
    options: ServeOptions, names: NameServerSettings, *, data: str, host: str, guard: GuardSettings
) -> NameServerNode:
    wanted = options.nameserver_port
    return NameServerNode(
        names,
        data=str(Path(data) / "namesrv"),
        host=host,
        port=NAMESERVER_PORT if wanted is None else wanted,
        guard=guard,
    )


def serve_nameserver(options: ServeOptions) -> int:
    """Run a name server alone."""
    found = options.gather_settings()
    config.warn_of_unknown_keys(found, source=options.source)
    settings = config.convert_settings(NameServerSettings, found, source=options.source)
    node = config.convert_settings(config.NodeSettings, found, source=options.source)
    _, port_options = _port_policy(options, found)
    host = options.host or node.host or LOOPBACK
    port = options.port if options.port is not None else node.port or NAMESERVER_PORT
    data = found.get("kvConfigPath")
    folder = str(Path(data).parent) if data else options.data or str(Path.home() / "namesrv")
    accounts = config.accounts_folder(node, data=folder)
    guard = _guard_settings(options, found, accounts=accounts, users=node.data or folder)
    registry = NameServerNode(settings, data=folder, host=host, port=port, guard=guard)

    async def main(stop: asyncio.Event) -> None:
        await registry.open(idle_ms=node.idle_s * 1000, port_options=port_options)
        freeze_loaded_objects()
        _log.info("name server, EscrowMQ %s, is open at %s", registry.build, registry.address)
        more = registry.export_metrics(node, host=host, is_alone=True)
        print_ready_line(nameserver=registry.address, **more)
        await stop.wait()
        await registry.close()

    return run_until_signal(main)


def serve_broker(options: ServeOptions) -> int:
    """Run a broker alone, registered at name servers elsewhere."""
    found = options.gather_settings()
    names = options.name_servers or found.get("namesrvAddr") or os.environ.get("NAMESRV_ADDR")
    node = config.convert_settings(config.NodeSettings, found, source=options.source)
    host = options.host or node.host or LOOPBACK
    settings, store, node = read_broker_settings(
        found,
        source=options.source,
        name=socket.gethostname() or EMBEDDED_NAME,
        name_servers=names,
        host=host,
    )
    if not settings.name_servers:
        _log.warning(
            "no name server is named (-n HOST:PORT, namesrvAddr or NAMESRV_ADDR): clients "
            "cannot find this broker through a name server"
        )
    ports, port_options = _port_policy(options, found)
    data = _data_folder(options, node)
    _warn_of_wide_permissions(options, found, node, data=data)
    group = config.read_group_settings(found, authority=options.authority, source=options.source)
    operator = _own_account(settings)
    process = BrokerFactory(
        settings=settings,
        store=store,
        node=node,
        data=data,
        host=host,
        port=_client_port(options, node),
        grpc_port=_bind_grpc_port(options, found, node, host=host, is_embedded=False),
        port_options=port_options,
        ports=ports,
        replica=None
        if group is not None
        else config.read_replica_settings(found, source=options.source),
        operator=operator,
    )
    http = BrokerHttpPort(options, found, node, host=host, has_default=False, operator=operator)
    if group is None:
        return _serve_single(process, http)
    from escrowmq.node.member_tls import member_tls_policy
    from escrowmq.node.serve_member import serve_member

    replica = config.convert_settings(ReplicaSettings, found, source=options.source)
    port_options.members = member_tls_policy(group, source=options.source)
    return serve_member(group, process, replica, http)


def _serve_single(process: BrokerFactory, http: BrokerHttpPort) -> int:
    broker = process.make_broker()
    exports = MetricsExports()

    async def main(stop: asyncio.Event) -> None:
        try:
            await process.open_broker(broker)
            await broker.wait_until_registered(stop)
            freeze_loaded_objects()
            more = http.open(broker, process.settings, data=process.data)
            more |= exports.open(broker, process.node, host=process.host)
            print_ready_line(**broker.open_ports(process.host), **more)
            await stop.wait()
        finally:
            await http.close()
            await exports.close()
            await broker.close()

    return run_until_signal(main)


def _own_account(settings: BrokerSettings) -> tuple[str, str]:
    """Return new credentials for what is in this process: its console, or the embedded broker at
    the name server. Addresses do not suffice, because all are called at the address to which the
    servers are bound, which may be a public one. The secret never leaves the process."""
    return f"{settings.name}@{os.getpid()}", secrets.token_hex(_SECRET_SIZE)


def _guard_settings(
    options: ServeOptions,
    found: dict[str, str],
    *,
    accounts: str,
    users: str,
    own: tuple[str, str] | None = None,
) -> GuardSettings:
    settings = config.convert_settings(NameServerGuardSettings, found, source=options.source)
    return GuardSettings(settings=settings, accounts=accounts, users=users, own=own)


_SECRETS = (
    "initAuthenticationUser",
    "innerClientAuthenticationCredentials",
    "tls.server.keyPassword",
    "tls.client.keyPassword",
    "escrowGroupTlsKeyPassword",
)


def _warn_of_wide_permissions(
    options: ServeOptions, found: dict[str, str], node: config.NodeSettings, *, data: str
) -> None:
    accounts = config.accounts_folder(node, data=data)
    settings = options.file if any(found.get(name) for name in _SECRETS) else None
    warn_of_wide_permissions(data=data, accounts=accounts, settings=settings)


def _port_policy(
    options: ServeOptions, found: dict[str, str], *, calls_itself: bool = False
) -> tuple[ConnectionSettings, PortOptions]:
    settings = config.convert_settings(ConnectionSettings, found, source=options.source)
    return settings, make_port_options(settings, source=options.source, dials_itself=calls_itself)


def _warn_of_name_server_setting(options: ServeOptions, found: dict[str, str]) -> None:
    if found.get("namesrvAddr"):
        _log.warning(
            "%s: namesrvAddr=%s has no effect: serve runs a name server of its own; "
                "`escrowmq broker` registers elsewhere", options.source, found["namesrvAddr"],
        )  # fmt: skip


def _embedded_replica_settings(
    options: ServeOptions, found: dict[str, str]
) -> ReplicaSettings | None:
    """Return the replication settings of the embedded broker. It cannot be a slave or a member of a
    group, because its name server knows no other broker."""
    if config.read_group_settings(found, authority=options.authority, source=options.source):
        raise UsageError(
            f"{options.source}: escrowAuthority: `serve` has a name server of its own, which the "
            "other members of a group do not know; start each by `escrowmq broker -n HOST:PORT "
            "--authority URL`"
        )
    replica = config.read_replica_settings(found, source=options.source)
    if replica is not None and replica.is_slave:
        raise UsageError(
            f"{options.source}: brokerRole=SLAVE: `serve` has a name server of its own, which "
            "knows no master; start the slave by `escrowmq broker -n HOST:PORT` with the master's "
            "name server"
        )
    return replica


def _client_port(options: ServeOptions, node: config.NodeSettings) -> int:
    return options.port if options.port is not None else node.port or BROKER_PORT


def _bind_grpc_port(
    options: ServeOptions,
    found: dict[str, str],
    node: config.NodeSettings,
    *,
    host: str,
    is_embedded: bool,
) -> socket.socket | None:
    """Bind the gRPC port. The embedded server has one by default, unless the system chose the port
    for clients."""
    wanted = options.grpc_port
    if wanted is None and "grpcServerPort" in found:
        wanted = node.grpc_port
    has_default = is_embedded and _client_port(options, node) != 0
    return bind_grpc(host, wanted, default=DEFAULT_GRPC_PORT if has_default else None)
