"""Metrics for Prometheus over HTTP, configured by RocketMQ's settings (metricsExporterType=PROM).

/health   200 `ready`, or 503 `read-only` and why others    the figures"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from threading import Thread
from typing import TYPE_CHECKING

from prometheus_client import make_wsgi_app

from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port
from escrowmq.node.metrics_and_health import LoopHealthReader, Read
from escrowmq.node.small_http_server import PATIENCE_S, SmallHttpServer

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_HEALTH = "/health"


class MetricsServer:
    """Serves one core's metrics on a separate thread; they are read on the event loop."""

    def __init__(  # noqa: PLR0913 - what is told, by which names, where, and for how long
        self,
        read: Read,
        *,
        labels: dict[str, str],
        host: str,
        port: int,
        refusal: Callable[[], str] = str,
        version: str = "",
        setting: str = "metricsPromExporterPort",
        patience_s: float = PATIENCE_S,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._vitals = LoopHealthReader(loop, read, labels=labels, refusal=refusal, version=version)
        self._figures = make_wsgi_app(self._vitals.registry)
        try:
            listener = bind_port(host, port)
        except ConnectFailed as error:
            raise ConnectFailed(
                f"cannot serve metrics: {error}; the setting is {setting}"
            ) from error
        self._server = SmallHttpServer(listener, self._serve, patience_s=patience_s)
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.port = int(self._server.server_port)

    def _serve(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != _HEALTH:
            figures: Iterable[bytes] = self._figures(environ, start)
            return figures
        refusal = self._vitals.unready_reason()
        start(
            "503 Service Unavailable" if refusal else "200 OK",
            [("Content-Type", "text/plain; charset=utf-8")],
        )
        return [f"read-only: {refusal}\n".encode() if refusal else b"ready\n"]

    async def close(self) -> None:
        """Stop serving."""
        await asyncio.get_running_loop().run_in_executor(None, self._server.shutdown)
        self._server.server_close()
        self._thread.join()
