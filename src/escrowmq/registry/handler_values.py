"""The arguments and results of the name server's handlers."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.codec.headers import read_header
from escrowmq.registry.kv_config import KvConfig
from escrowmq.registry.route_table import RouteTable
from escrowmq.registry.settings_file import SettingsFile

ROUTES_CACHED_MAX: Final = 4_096

H = TypeVar("H", bound=msgspec.Struct)


class RegistryRequest:
    """A request, its sender, and the time."""

    __slots__ = ("command", "now_ms", "peer")

    def __init__(self, command: Command, peer: int, now_ms: int) -> None:
        self.command = command
        self.peer = peer
        self.now_ms = now_ms

    def header(self, kind: type[H]) -> H:
        """Decode the header fields into this struct."""
        return read_header(kind, self.command.ext)


class RegistryAnswer(msgspec.Struct, frozen=True):
    """A reply to be encoded."""

    code: int = Response.SUCCESS
    ext: dict[str, str] | None = None
    body: bytes = b""
    remark: str | None = None


DONE: Final = RegistryAnswer()


class RegistryState:
    """The name server's state, which the handlers read and change."""

    def __init__(
        self,
        settings: NameServerSettings,
        routes: RouteTable,
        *,
        kv: KvConfig,
        config: SettingsFile,
        started_ms: int,
    ) -> None:
        self.settings = settings
        self.config = config
        self.routes = routes
        self.kv = kv
        self.started_ms = started_ms
        self._bodies: dict[tuple[str, bool], bytes] = {}
        self._bodies_at = 0

    def cached_routes(self) -> dict[tuple[str, bool], bytes]:
        """Encoded routes by topic and form; cleared by any change. Every client requests the routes
        of its topics twice a minute, while routes seldom change."""
        at = self.routes.changes_count
        if at != self._bodies_at or len(self._bodies) >= ROUTES_CACHED_MAX:
            self._bodies = {}
            self._bodies_at = at
        return self._bodies
