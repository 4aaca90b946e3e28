"""The broker's identity to others."""

from __future__ import annotations

from escrowmq.codec.ids import pack_host


class Identity:
    """The broker's address, and its start time."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self.packed = pack_host(host, port)
        """The address in the form of records and ids."""
        self.started_ms = 0
        self.release = ""
        """The release of EscrowMQ; the process sets it."""
