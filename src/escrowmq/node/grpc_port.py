"""The gRPC port, and its front."""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Final

from escrowmq.base.wire import Wire
from escrowmq.broker.core import BrokerCore
from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port

if TYPE_CHECKING:
    from escrowmq.proxy.front import GrpcFront

_log = logging.getLogger(__name__)

NO_PORT: Final = -1
DEFAULT_GRPC_PORT: Final = 8081
"""The default gRPC port, that of RocketMQ's proxy."""


def bind_grpc(host: str, wanted: int | None, *, default: int | None) -> socket.socket | None:
    """Bind the configured port (0: any; -1: none). If a default port is in use, log that, and
    return None."""
    if wanted == NO_PORT or (wanted is None and default is None):
        return None
    if wanted is not None:
        return bind_port(host, wanted)
    assert default is not None
    try:
        return bind_port(host, default)
    except ConnectFailed as error:
        _log.warning(
            "no port for gRPC clients: %s; choose another with --grpc-port, or none with "
                "grpcServerPort=-1", error,
        )  # fmt: skip
        return None


def make_grpc_front(
    core: BrokerCore, *, host: str, port: int, body_size_max: int, is_of_group: bool
) -> GrpcFront:
    """Create the gRPC front of a broker. Routes contain this address; those of a group contain the
    address that the client used."""
    from escrowmq.broker.guests import GuestClients
    from escrowmq.proxy.front import GrpcFront
    from escrowmq.proxy.service_context import FrontOptions

    options = FrontOptions(
        endpoint=(host, port), body_size_max=body_size_max, is_of_group=is_of_group
    )
    front = GrpcFront(GuestClients(core), options)
    core.add_front(Wire.GRPC, front)
    return front
