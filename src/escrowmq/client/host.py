"""This machine's own address, for client ids and message ids."""

from __future__ import annotations

import socket

_ANYWHERE = ("192.0.2.1", 9)
"""An address that is reserved for documentation; nothing is sent to it."""


def local_address() -> str:
    """Return the address from which the machine reaches others; loopback if it has no network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect(_ANYWHERE)  # datagrams: this only asks the routing table
            return str(sock.getsockname()[0])
        except OSError:
            return "127.0.0.1"
