"""Figures for Prometheus over HTTP, under RocketMQ's settings (metricsExporterType=PROM).

/health   200 `ready`, or 503 `read-only` and why
others    the figures
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from threading import Lock, Thread
from typing import TYPE_CHECKING, Final, TypeVar
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, ProcessCollector, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.registry import Collector

from escrowmq.base.measure import Distribution, Family, Sample
from escrowmq.errors import ConnectFailed
from escrowmq.net.clock import steady_s

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

_log = logging.getLogger(__name__)
_ANSWER_S = 5.0

THREADS_MAX: Final = 8
"""Connections that are served at a time."""

PATIENCE_S: Final = 10.0
"""A connection is served so long at most."""

_HEALTH = "/health"
T = TypeVar("T")
_KINDS: dict[str, type[GaugeMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
}

Read = Callable[[], list[Family]]
Request = socket.socket | tuple[bytes, socket.socket]
"""As socketserver has it: a connection, or a datagram."""


class _Quiet(WSGIRequestHandler):
    """Writes no line for each look at the figures."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


class Exporter:
    """Serves one core's figures from a thread of its own; they are read on the event loop."""

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
        self._read = read
        self._refusal = refusal
        self._labels = labels
        self._build = Family(
            "escrowmq_build", "gauge", "Which EscrowMQ this is.", ("version",),
            (Sample((version,), 1),),
        )  # fmt: skip
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(_Collector(self._families))
        ProcessCollector(registry=registry)
        self._figures = make_wsgi_app(registry)
        kind = _server_kind(host, patience_s)
        try:
            self._server = make_server(host, port, self._serve, kind, handler_class=_Quiet)
        except OSError as error:
            raise ConnectFailed(
                f"cannot serve metrics on {host}:{port}: {error.strerror}; choose another "
                f"{setting}, or 0 for any"
            ) from error
        self._thread = Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.port = int(self._server.server_port)

    def _serve(self, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != _HEALTH:
            figures: Iterable[bytes] = self._figures(environ, start)
            return figures
        refusal = self._on_loop(self._refusal)
        start(
            "503 Service Unavailable" if refusal else "200 OK",
            [("Content-Type", "text/plain; charset=utf-8")],
        )
        return [f"read-only: {refusal}\n".encode() if refusal else b"ready\n"]

    def _families(self) -> list[Metric]:
        families = [*self._on_loop(self._read), self._build]
        return [_shown(family, self._labels) for family in families]

    def _on_loop(self, read: Callable[[], T]) -> T:
        """What the event loop's thread reads for this one."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(_answer, read, future)
        return future.result(_ANSWER_S)

    async def close(self) -> None:
        """Serve no more."""
        await self._loop.run_in_executor(None, self._server.shutdown)
        self._server.server_close()
        self._thread.join()


def _answer(read: Callable[[], T], future: concurrent.futures.Future[T]) -> None:
    try:
        future.set_result(read())
    except Exception as error:  # noqa: BLE001 - one look at the figures; told and logged
        _log.exception("the figures could not be read")
        future.set_exception(error)


class _FewThreads(ThreadingWSGIServer):
    """A thread for each connection, as the library has it, but few of them, and not for long."""

    patience_s = PATIENCE_S

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._since_s: dict[socket.socket, float] = {}
        """Connections that are served, the oldest first, and since when."""
        self._guard = Lock()
        super().__init__(address, handler)

    def process_request(self, request: Request, client_address: object) -> None:
        """Serve one more; the oldest of too many is cut. Whoever asks for figures has them within
        milliseconds, so that the oldest is one that asks for nothing."""
        with self._guard:
            while len(self._since_s) >= THREADS_MAX:
                self._cut(next(iter(self._since_s)))
            self._since_s[_socket(request)] = steady_s()
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Now and then: cut those who take too long, also if they send or read a byte now and
        then."""
        with self._guard:
            late_s = steady_s() - self.patience_s
            for request in [each for each, since_s in self._since_s.items() if since_s < late_s]:
                self._cut(request)

    def _cut(self, request: socket.socket) -> None:
        del self._since_s[request]
        with suppress(OSError):  # it is gone already
            request.shutdown(socket.SHUT_RDWR)  # its thread hears of it, and closes it

    def shutdown_request(self, request: Request) -> None:
        """One is done."""
        with self._guard:
            self._since_s.pop(_socket(request), None)
        super().shutdown_request(request)

    def handle_error(self, request: Request, client_address: object) -> None:
        """One that was cut, or left, while it was written to: not worth a trace of the error."""
        _log.debug("metrics: the connection of %s ended early", client_address, exc_info=True)


def _socket(request: Request) -> socket.socket:
    """What a server of connections has as its request."""
    assert isinstance(request, socket.socket), request
    return request


def _server_kind(host: str, patience_s: float) -> type[WSGIServer]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return type("_Server", (_FewThreads,), {"address_family": family, "patience_s": patience_s})


class _Collector(Collector):
    def __init__(self, families: Callable[[], list[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """All figures, as the library wants them."""
        yield from self._families()

    def describe(self) -> list[Metric]:
        """Nothing before the first look."""
        return []


def _shown(family: Family, constant: dict[str, str]) -> Metric:
    names, values = [*constant, *family.labels], [*constant.values()]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.text, labels=names)
        for item in family.samples:
            assert isinstance(item, Distribution), item
            buckets = [(_bound(bound), float(count)) for bound, count in item.buckets]
            histogram.add_metric([*values, *item.of], buckets, item.sum)
        return histogram
    metric = _KINDS[family.kind](family.name, family.text, labels=names)
    for sample in family.samples:
        assert isinstance(sample, Sample), sample
        metric.add_metric([*values, *sample.of], sample.value)
    return metric


def _bound(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(bound)
