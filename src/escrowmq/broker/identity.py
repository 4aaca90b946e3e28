"""Who this broker is to others."""

from __future__ import annotations

from escrowmq.codec.ids import pack_host


class Identity:
    """Where it is reached, and since when it runs."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self.packed = pack_host(host, port)
        """The address as records and ids have it."""
        self.started_ms = 0
        self.release = ""
        """Which EscrowMQ this is; the process knows."""
