"""The ports of a broker, bound before anybody is let in."""

from __future__ import annotations

import logging
import socket

from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.errors import ConnectFailed
from escrowmq.net.admission import bind

_log = logging.getLogger(__name__)

_FAST_BELOW = 2
HA_ABOVE = 1
"""Slaves connect to the port so far above that of clients, as at RocketMQ."""


class GroupDoors:
    """The ports of a member of a group. They stay the same while its brokers come and go: clients
    that connect in between wait. Those of copies and of gRPC clients are open at a master only: a
    member that finds the one closed knows that there is none, and a gRPC client that knows all
    members finds the master, since it goes on to the next address where nobody listens."""

    def __init__(
        self, replica: ReplicaSettings, *, host: str, port: int, grpc_door: socket.socket | None
    ) -> None:
        self._host = host
        self._ha_host = replica.ha_bind or host
        self._door = bind(host, port)
        self.port = int(self._door.getsockname()[1])
        self._fast_door = bind_fast(host, port)
        self._grpc_door = grpc_door
        self.grpc_port = 0 if grpc_door is None else int(grpc_door.getsockname()[1])
        self._ha_door = bind_ha(replica, host=host, port=port)
        self.ha_port = int(self._ha_door.getsockname()[1])

    def door(self) -> socket.socket:
        """For clients."""
        return self._door.dup()

    def fast_door(self) -> socket.socket | None:
        """The second one for clients."""
        return None if self._fast_door is None else self._fast_door.dup()

    def grpc_door(self) -> socket.socket | None:
        """For clients of RocketMQ 5: one of its own for each master, as `ha_door`."""
        return bind(self._host, self.grpc_port) if self.grpc_port else None

    def ha_door(self) -> socket.socket:
        """For copies: one of its own for each master, closed with it. The number stays ours."""
        return bind(self._ha_host, self.ha_port)

    def close(self) -> None:
        """Give the ports back."""
        for door in (self._door, self._fast_door, self._grpc_door, self._ha_door):
            if door is not None:
                door.close()


def bind_fast(host: str, port: int) -> socket.socket | None:
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
