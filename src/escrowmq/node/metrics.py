"""Figures for Prometheus over HTTP, under the peer's settings (metricsExporterType=PROM)."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterator
from http.server import HTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from escrowmq.base.measure import Distribution, Family, Sample
from escrowmq.errors import ConnectFailed

_log = logging.getLogger(__name__)
_ANSWER_S = 5.0
_KINDS: dict[str, type[GaugeMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
}

Read = Callable[[], list[Family]]


class Exporter:
    """Serves one core's figures from a thread of its own; they are read on the event loop."""

    def __init__(self, read: Read, *, labels: dict[str, str], host: str, port: int) -> None:
        self._read = read
        self._labels = labels
        self._loop = asyncio.get_running_loop()
        registry = CollectorRegistry()
        registry.register(_Collector(self._families))
        try:
            served: tuple[HTTPServer, Thread] = start_http_server(
                port, addr=host, registry=registry
            )
        except OSError as error:
            raise ConnectFailed(
                f"cannot serve metrics on {host}:{port}: {error.strerror}; choose another "
                "metricsPromExporterPort, or 0 for any"
            ) from error
        self._server, self._thread = served
        self.port = int(self._server.server_port)

    def _families(self) -> list[Metric]:
        future: concurrent.futures.Future[list[Family]] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(self._answer, future)
        return [_shown(family, self._labels) for family in future.result(_ANSWER_S)]

    def _answer(self, future: concurrent.futures.Future[list[Family]]) -> None:
        try:
            future.set_result(self._read())
        except Exception as error:  # noqa: BLE001 - one look at the figures; told and logged
            _log.exception("the figures could not be read")
            future.set_exception(error)

    async def close(self) -> None:
        """Serve no more."""
        await self._loop.run_in_executor(None, self._server.shutdown)
        self._server.server_close()
        self._thread.join()


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
