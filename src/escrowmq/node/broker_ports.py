"""The ports of a broker; they are bound before clients are accepted."""

from __future__ import annotations

import logging
import socket

from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port

_log = logging.getLogger(__name__)

_FAST_BELOW = 2
HA_PORT_OFFSET = 1
"""Difference between the replication port and the clients' port, as in RocketMQ."""


class GroupPorts:
    """The ports of a group's member. They stay bound while its brokers are replaced, so that
    clients which connect meanwhile wait. The ports for replication and for gRPC clients are open
    only at the master: a member that finds the port closed knows that there is no master, and a
    gRPC client that knows all members tries the next address."""

    def __init__(
        self, replica: ReplicaSettings, *, host: str, port: int, grpc_socket: socket.socket | None
    ) -> None:
        self._host = host
        self._ha_host = replica.ha_bind or host
        self._socket = bind_port(host, port)
        self.port = int(self._socket.getsockname()[1])
        self._fast_socket = bind_vip_port(host, port)
        self._grpc_socket = grpc_socket
        self.grpc_port = 0 if grpc_socket is None else int(grpc_socket.getsockname()[1])
        self._ha_socket = bind_replication_port(replica, host=host, port=port)
        self.ha_port = int(self._ha_socket.getsockname()[1])

    def client_port(self) -> socket.socket:
        """Return the listening socket for clients."""
        return self._socket.dup()

    def vip_port(self) -> socket.socket | None:
        """Return the second listening socket for clients; None if there is none."""
        return None if self._fast_socket is None else self._fast_socket.dup()

    def bind_grpc_port(self) -> socket.socket | None:
        """Return the listening socket for gRPC clients. Each time this member becomes master gets a
        new one."""
        return bind_port(self._host, self.grpc_port) if self.grpc_port else None

    def bind_replication_port(self) -> socket.socket:
        """Return the listening socket for replication. Each time this member becomes master gets a
        new one with the same port number; it is closed when that time ends."""
        return bind_port(self._ha_host, self.ha_port)

    def close(self) -> None:
        """Close the ports."""
        for listener in (self._socket, self._fast_socket, self._grpc_socket, self._ha_socket):
            if listener is not None:
                listener.close()


def bind_vip_port(host: str, port: int) -> socket.socket | None:
    """Bind the second port of RocketMQ's brokers, two below the first; clients use it for the "VIP
    channel". Return None if the system chose the first port."""
    if port <= _FAST_BELOW:
        return None
    try:
        return bind_port(host, port - _FAST_BELOW)
    except ConnectFailed as error:
        _log.warning("no fast port: %s", error)
        return None


def bind_replication_port(replica: ReplicaSettings, *, host: str, port: int) -> socket.socket:
    """Bind the replication port, which RocketMQ chooses as the clients' port plus one; any free
    port if the system chose the clients' port."""
    wanted = replica.ha_port or (port + HA_PORT_OFFSET if port else 0)
    return bind_port(replica.ha_bind or host, wanted)
