"""Creates the brokers of a process from its settings: one; or in a group, one after another."""

from __future__ import annotations

import copy
import socket
from typing import TYPE_CHECKING

import msgspec

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.net.tls import PortOptions
from escrowmq.node import config
from escrowmq.node.broker import BrokerNode
from escrowmq.node.broker_ports import GroupPorts
from escrowmq.node.connection_settings import ConnectionSettings

if TYPE_CHECKING:
    from escrowmq.group.membership import GroupMembership


class BrokerFactory(msgspec.Struct, kw_only=True):
    """Creates a process's brokers, from its settings and ports."""

    settings: BrokerSettings
    store: StoreSettings
    node: config.NodeSettings
    data: str
    host: str
    port: int
    grpc_port: socket.socket | None
    port_options: PortOptions
    ports: ConnectionSettings
    replica: ReplicaSettings | None
    operator: tuple[str, str]
    """Name and secret with which the console of the process signs."""

    @property
    def accounts_folder(self) -> str:
        """Return the folder of ACL 1.0's accounts."""
        return config.accounts_folder(self.node, data=self.data)

    def make_broker(self) -> BrokerNode:
        """Create a broker that is in no group."""
        return BrokerNode(
            self.settings,
            self.store,
            data=self.data,
            host=self.host,
            port=self.port,
            log=self.node.log,
            accounts=self.accounts_folder,
            grpc_socket=self.grpc_port,
            replica=self.replica,
            operator=self.operator,
        )

    def make_member(
        self, membership: GroupMembership, number: int, group_ports: GroupPorts
    ) -> BrokerNode:
        """Create a group member's broker for its present role. It gets copies of the settings,
        because a broker may change them."""
        settings = copy.copy(self.settings)
        settings.broker_id = number
        return BrokerNode(
            settings,
            copy.copy(self.store),
            data=self.data,
            host=self.host,
            port=group_ports.port,
            log=self.node.log,
            accounts=self.accounts_folder,
            grpc_socket=None if membership.leads is None else group_ports.bind_grpc_port(),
            membership=membership,
            operator=self.operator,
            group_ports=group_ports,
        )

    async def open_broker(self, broker: BrokerNode) -> None:
        """Open a broker."""
        node = self.node
        await broker.open(
            idle_ms=node.idle_s * 1000,
            port_options=self.port_options,
            ports=self.ports,
            spin_us=node.spin_us,
        )
