"""The health of a broker, for other threads: its metrics, whether it is alive, whether it is ready.
All of this is read on the broker's event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from escrowmq.base.measure import Distribution, MetricFamily, Sample

_log = logging.getLogger(__name__)
ANSWER_S: Final = 5.0
"""An event loop that has not answered within this many seconds is not alive."""

_QUICK_S: Final = 0.02
"""If computing all metrics takes no longer than this, they are computed for each request."""

_REST: Final = 9
"""If computing all metrics takes longer than `_QUICK_S`, the result is reused for this many times
as long."""

T = TypeVar("T")
Read = Callable[[], list[MetricFamily]]
_KINDS: dict[str, type[GaugeMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
}


class _CachedMetrics(NamedTuple):
    """The text of all metrics, and until when it is reused."""

    text: bytes
    until_s: float


class LoopHealthReader:
    """Reads the health of one event loop's core. Its methods are called from other threads, and
    block."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        read: Read,
        *,
        labels: dict[str, str],
        refusal: Callable[[], str],
        version: str,
    ) -> None:
        self._read = read
        self._refusal = refusal
        self._labels = labels
        self._build = MetricFamily(
            "escrowmq_build", "gauge", "The build of EscrowMQ.", ("version",),
            (Sample((version,), 1),),
        )  # fmt: skip
        self._loop = loop
        self._computing = threading.Lock()
        self._computed: dict[str, _CachedMetrics] = {}
        self.registry = CollectorRegistry()
        self.registry.register(_PrometheusCollector(self._families))
        ProcessCollector(registry=self.registry)

    def metrics_text(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics in a format that the client accepts, and the name of that format. If
        they take long to compute, requests in quick succession get the same text: the metrics are
        computed on the broker's event loop, and any client may request them."""
        encode, kind = choose_encoder(accept)
        with self._computing:
            known = self._computed.get(kind)
            began_s = time.monotonic()
            if known is not None and began_s < known.until_s:
                return known.text, kind
            text = encode(self.registry)
            now_s = time.monotonic()
            fresh_s = (now_s - began_s) * _REST if now_s - began_s > _QUICK_S else 0.0
            self._computed = {kind: _CachedMetrics(text, now_s + fresh_s)}
            return text, kind

    def unready_reason(self) -> str:
        """Return why the server is not ready; empty if it is."""
        return self._run_on_loop(self._refusal)

    def is_alive(self) -> bool:
        """Whether the event loop runs."""
        try:
            return self._run_on_loop(lambda: True)
        except TimeoutError:
            return False

    def _families(self) -> list[Metric]:
        families = [*self._run_on_loop(self._read), self._build]
        return [_as_metric(family, self._labels) for family in families]

    def _run_on_loop(self, read: Callable[[], T]) -> T:
        """Run a function on the event loop's thread, and return its result."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(_run_into_future, read, future)
        return future.result(ANSWER_S)


def _run_into_future(read: Callable[[], T], future: concurrent.futures.Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except Exception as error:  # noqa: BLE001 - one look at the figures; told and logged
        _log.exception("the metrics could not be read")
        future.set_exception(error)


class _PrometheusCollector(Collector):
    def __init__(self, families: Callable[[], list[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Return all metrics, in the form of the Prometheus library."""
        yield from self._families()

    def describe(self) -> list[Metric]:
        """Return nothing: the metrics are not known before they are collected."""
        return []


def _as_metric(family: MetricFamily, constant: dict[str, str]) -> Metric:
    names, values = [*constant, *family.labels], [*constant.values()]
    if family.kind == "histogram":
        histogram = HistogramMetricFamily(family.name, family.text, labels=names)
        for item in family.samples:
            assert isinstance(item, Distribution), item
            buckets = [(_bucket_label(bound), float(count)) for bound, count in item.buckets]
            histogram.add_metric([*values, *item.of], buckets, item.sum)
        return histogram
    metric = _KINDS[family.kind](family.name, family.text, labels=names)
    for sample in family.samples:
        assert isinstance(sample, Sample), sample
        metric.add_metric([*values, *sample.of], sample.value)
    return metric


def _bucket_label(bound: float) -> str:
    return "+Inf" if bound == float("inf") else str(bound)
