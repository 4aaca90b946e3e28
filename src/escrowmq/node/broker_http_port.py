"""The HTTP port of a broker's process: bound when the process starts, served by node.http_port."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.node import config
from escrowmq.node.addresses import host_and_port
from escrowmq.node.connection_settings import ConnectionSettings, console_tls

if TYPE_CHECKING:
    from escrowmq.console.options import ConsoleOptions, LocalUser
    from escrowmq.node.http_port import HttpPort
    from escrowmq.node.metrics_and_health import LoopHealthReader

_log = logging.getLogger(__name__)


class HttpOptions(Protocol):
    """The options of the command line that concern the HTTP port."""

    http_port: int | None
    console_password_file: str | None
    console_viewer_file: str | None
    console_proxies: tuple[str, ...]

    @property
    def source(self) -> str:
        """Where the settings come from, for messages."""


class HealthSource(Protocol):
    """A server that can report its health."""

    def health_reader(self, loop: asyncio.AbstractEventLoop) -> LoopHealthReader:
        """Return an object with which other threads can read the server's health."""


class BrokerHttpPort:
    """The HTTP port of a broker's process, if it has one."""

    def __init__(
        self,
        options: HttpOptions,
        found: dict[str, str],
        node: config.NodeSettings,
        *,
        host: str,
        has_default: bool,
        operator: tuple[str, str],
    ) -> None:
        """`operator`: name and secret with which the console signs if there are no accounts."""
        self._options, self._found, self._host = options, found, host
        self._operator = operator
        wanted = options.http_port
        if wanted is None and "escrowHttpPort" in found:
            wanted = node.http_port
        self._port: HttpPort | None = None
        self._socket: socket.socket | None = None
        if has_default or wanted is not None:
            from escrowmq.node.http_port import DEFAULT, bind_http

            self._socket = bind_http(host, wanted, default=DEFAULT if has_default else None)

    def open(self, broker: HealthSource, settings: BrokerSettings, *, data: str) -> dict[str, str]:
        """Accept connections; return the address of the port, for the ready line."""
        if self._socket is None:
            return {}
        from escrowmq.node.http_port import HttpPort, has_console, server_factory

        loop = asyncio.get_running_loop()
        is_possible = has_console() and settings.name_servers
        console = self._console_options(settings, data) if is_possible else None
        make = server_factory(lambda: broker.health_reader(loop), console)
        self._port = HttpPort(self._socket, make)
        self._port.open()
        address = host_and_port(self._host, self._port.port)
        what = "the console" if console else "/healthz, /readyz and /metrics"
        _log.info("%s: http://%s/", what, address)
        return {"http": address}

    def _console_options(self, settings: BrokerSettings, data: str) -> ConsoleOptions:
        from escrowmq.client.core.credentials import Credentials
        from escrowmq.console.options import ConsoleOptions

        ports = config.convert_settings(
            ConnectionSettings, self._found, source=self._options.source
        )
        has_accounts = settings.acl_enabled or settings.authenticates
        users: tuple[LocalUser, ...] = ()
        if not has_accounts:
            from escrowmq.console.local_users import read_local_users

            users = read_local_users(
                str(Path(data) / "config"),
                password_file=self._options.console_password_file,
                viewer_file=self._options.console_viewer_file,
            )
        return ConsoleOptions(
            name_servers=settings.name_servers,
            login="accounts" if has_accounts else "local",
            users=users,
            proxies=self._options.console_proxies,
            credentials=None if has_accounts else Credentials(*self._operator),
            tls=console_tls(ports),
            is_beside_broker=True,
        )

    async def close(self) -> None:
        """Stop serving, and close the port."""
        if self._port is not None:
            await self._port.close()
        elif self._socket is not None:
            self._socket.close()
