"""Runs a broker that is a member of a group."""

from __future__ import annotations

import asyncio
import logging

from escrowmq.authority.opening import open_authority
from escrowmq.base.group_settings import GroupSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.node.addresses import joined
from escrowmq.node.broker import boot_id
from escrowmq.node.broker_ports import GroupPorts
from escrowmq.node.broker_process import BrokerProcess
from escrowmq.node.exports import Exports
from escrowmq.node.group import GroupNode, Plan, read_secret
from escrowmq.node.group_folder import Folder
from escrowmq.node.http_door import HttpDoor
from escrowmq.node.process import announce, freeze_loaded_objects, run

_log = logging.getLogger(__name__)


def serve_member(
    group: GroupSettings, process: BrokerProcess, replica: ReplicaSettings, http: HttpDoor
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
    doors = GroupPorts(replica, host=host, port=process.port, grpc_door=process.grpc_door)

    exports = Exports()

    async def main(stop: asyncio.Event) -> None:
        member = _member(group, process, replica, doors, secret=secret, stop=stop)
        try:
            await member.open(process.open)
            freeze_loaded_objects()
            more = http.open(member, process.settings, data=process.data)
            more |= exports.open(member, process.node, host=host)
            assert member.current is not None
            mine = member.current.doors(host) | {
                "group": joined(host, doors.ha_port), "member": member.member.state.member,
            }  # fmt: skip
            if doors.grpc_port:
                mine["grpc"] = joined(host, doors.grpc_port)
            announce(**mine, **more)
            await stop.wait()
        finally:
            await http.close()
            await exports.close()
            await member.close()
            doors.close()

    return run(main)


def _member(
    group: GroupSettings,
    process: BrokerProcess,
    replica: ReplicaSettings,
    doors: GroupPorts,
    *,
    secret: bytes,
    stop: asyncio.Event,
) -> GroupNode:
    settings, store = process.settings, process.store
    told = settings.advertised_host
    return GroupNode(
        group,
        Plan(
            lambda membership, number: process.member(membership, number, doors),
            cluster=settings.cluster,
            broker=settings.name,
            timeout_ms=replica.slave_timeout_ms,
            loses_nothing=store.is_sync_flush,
        ),
        Folder(process.data, process.node.log, store, boot=boot_id()),
        open_authority(group.authority),
        secret=secret,
        address=joined(replica.ha_host or told, doors.ha_port),
        client_address=joined(told, doors.port),
        on_failure=stop.set,
    )
