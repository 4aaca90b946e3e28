"""How the broker identifies itself to others, and how its own process does to it."""

from __future__ import annotations

from escrowmq.codec.ids import pack_host


class Identity:
    """The broker's address, start time and release."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self.packed = pack_host(host, port)
        """The address as it is encoded in records and message ids."""
        self.started_ms = 0
        self.release = ""
        """The release of EscrowMQ; set by the process."""
        self.operator: tuple[str, str] | None = None
        """Name and secret with which the console in this process signs its requests; set by the
        process, if it has a console."""
