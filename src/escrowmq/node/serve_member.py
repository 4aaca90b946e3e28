"""Runs a broker that is a member of a group."""

from __future__ import annotations

import asyncio
import logging

from escrowmq.authority.opening import open_authority
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.node.addresses import host_and_port
from escrowmq.node.broker import boot_id
from escrowmq.node.broker_factory import BrokerFactory
from escrowmq.node.broker_http_port import BrokerHttpPort
from escrowmq.node.broker_ports import GroupPorts
from escrowmq.node.group import BrokerPlan, GroupNode, read_secret
from escrowmq.node.group_folder import GroupFolder
from escrowmq.node.metrics_exports import MetricsExports
from escrowmq.node.process import freeze_loaded_objects, print_ready_line, run_until_signal

_log = logging.getLogger(__name__)


def serve_member(
    group: GroupSettings, process: BrokerFactory, replica: ReplicaSettings, http: BrokerHttpPort
) -> int:
    """Run the member until a signal ends it."""
    secret = read_secret(group.secret_file)
    if not secret and group.tls != "enforcing":
        _log.warning(
            "the group has neither a secret (escrowGroupSecretFile) nor certificates "
            "(escrowGroupTls=enforcing): anyone who can reach a master's replication port "
            "can copy all messages, and pose as a member"
        )
    host = process.host
    group_ports = GroupPorts(replica, host=host, port=process.port, grpc_socket=process.grpc_port)

    exports = MetricsExports()

    async def main(stop: asyncio.Event) -> None:
        member = _make_member(group, process, replica, group_ports, secret=secret, stop=stop)
        try:
            await member.open(process.open_broker)
            freeze_loaded_objects()
            more = http.open(member, process.settings, data=process.data)
            more |= exports.open(member, process.node, host=host)
            assert member.current is not None
            mine = member.current.open_ports(host) | {
                "group": host_and_port(host, group_ports.ha_port),
                "member": member.member.state.member,
            }  # fmt: skip
            if group_ports.grpc_port:
                mine["grpc"] = host_and_port(host, group_ports.grpc_port)
            print_ready_line(**mine, **more)
            await stop.wait()
        finally:
            await http.close()
            await exports.close()
            await member.close()
            group_ports.close()

    return run_until_signal(main)


def _make_member(
    group: GroupSettings,
    process: BrokerFactory,
    replica: ReplicaSettings,
    group_ports: GroupPorts,
    *,
    secret: bytes,
    stop: asyncio.Event,
) -> GroupNode:
    settings, store = process.settings, process.store
    host = settings.advertised_host
    return GroupNode(
        group,
        BrokerPlan(
            lambda membership, number: process.make_member(membership, number, group_ports),
            cluster=settings.cluster,
            broker=settings.name,
            timeout_ms=replica.slave_timeout_ms,
            loses_nothing=store.is_sync_flush,
        ),
        GroupFolder(process.data, process.node.log, store, boot=boot_id()),
        open_authority(group.authority),
        secret=secret,
        address=host_and_port(replica.ha_host or host, group_ports.ha_port),
        client_address=host_and_port(host, group_ports.port),
        on_failure=stop.set,
    )
