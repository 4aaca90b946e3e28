"""`escrowmq console`: the console alone, for a cluster that runs elsewhere."""

from __future__ import annotations

import asyncio
import logging

from escrowmq.console.options import ConsoleOptions
from escrowmq.net.incoming_connections import bind_port
from escrowmq.node.addresses import host_and_port
from escrowmq.node.http_port import HttpPort
from escrowmq.node.process import print_ready_line, run_until_signal

_log = logging.getLogger(__name__)


def serve_console(options: ConsoleOptions, *, host: str, port: int) -> int:
    """Serve pages and API until a signal arrives; return the exit code."""
    from escrowmq.console.server import ConsoleServer

    http = HttpPort(bind_port(host, port), lambda listener: ConsoleServer(listener, options, None))

    async def main(stop: asyncio.Event) -> None:
        http.open()
        address = host_and_port(host, http.port)
        _log.info("the console: http://%s/", address)
        print_ready_line(http=address)
        await stop.wait()
        await http.close()

    return run_until_signal(main)
