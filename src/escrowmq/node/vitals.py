"""How a broker is, for callers in other threads: figures, whether it lives, whether it is ready.
All of it is read on the broker's event loop."""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from escrowmq.base.measure import Distribution, Family, Sample

_log = logging.getLogger(__name__)
ANSWER_S: Final = 5.0
"""A loop that has not answered for so long is not alive."""

T = TypeVar("T")
Read = Callable[[], list[Family]]
_KINDS: dict[str, type[GaugeMetricFamily | CounterMetricFamily]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
}


class Vitals:
    """How the core of one event loop is; its methods are for other threads, and wait."""

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
        self._build = Family(
            "escrowmq_build", "gauge", "Which EscrowMQ this is.", ("version",),
            (Sample((version,), 1),),
        )  # fmt: skip
        self._loop = loop
        self.registry = CollectorRegistry()
        self.registry.register(_Collector(self._families))
        ProcessCollector(registry=self.registry)

    def figures(self, accept: str) -> tuple[bytes, str]:
        """All figures in a form that the asker accepts, and which one that is."""
        encode, kind = choose_encoder(accept)
        return encode(self.registry), kind

    def refusal(self) -> str:
        """Why it does not do its work; empty when it does."""
        return self._on_loop(self._refusal)

    def is_alive(self) -> bool:
        """Whether the event loop turns."""
        try:
            return self._on_loop(lambda: True)
        except TimeoutError:
            return False

    def _families(self) -> list[Metric]:
        families = [*self._on_loop(self._read), self._build]
        return [_shown(family, self._labels) for family in families]

    def _on_loop(self, read: Callable[[], T]) -> T:
        """What the event loop's thread reads for this one."""
        future: concurrent.futures.Future[T] = concurrent.futures.Future()
        self._loop.call_soon_threadsafe(_answer, read, future)
        return future.result(ANSWER_S)


def _answer(read: Callable[[], T], future: concurrent.futures.Future[T]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(read())
    except Exception as error:  # noqa: BLE001 - one look at the figures; told and logged
        _log.exception("the figures could not be read")
        future.set_exception(error)


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
