"""Sends a server's metrics to an OpenTelemetry collector, by OTLP over HTTP.

The metrics are those of /metrics, under the same names: they are collected from the same registry,
and sent by OpenTelemetry's own exporter, which reads the standard variables
(OTEL_EXPORTER_OTLP_HEADERS, _TIMEOUT, _COMPRESSION, _CERTIFICATE, OTEL_RESOURCE_ATTRIBUTES, ...).
Nothing of it is loaded unless an endpoint is named."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Callable, Iterable
from threading import Event, Thread
from typing import TYPE_CHECKING, Final

from escrowmq.base.extras import require_extra
from escrowmq.errors import UsageError
from escrowmq.net.clock import SystemClock

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.sdk.metrics.export import (
        HistogramDataPoint,
        Metric,
        MetricsData,
        NumberDataPoint,
    )
    from opentelemetry.sdk.resources import Resource
    from prometheus_client.core import Metric as Family

    from escrowmq.node.metrics_and_health import LoopHealthReader

_log = logging.getLogger(__name__)

SETTING: Final = "escrowOtlpEndpoint"
_PATH: Final = "/v1/metrics"
_INTERVAL_MS: Final = 60_000
_NS_PER_MS: Final = 1_000_000
_SCOPE: Final = "escrowmq"
_LAST_S: Final = 5.0
"""The most seconds for which a stop waits until the last metrics are sent."""


def otlp_endpoint(setting: str) -> str:
    """Return the address that metrics are sent to; empty if none is configured. The setting
    overrides the environment. To an endpoint for all signals, the path for metrics is added, as
    OpenTelemetry specifies."""
    if setting:
        return _with_metrics_path(setting, SETTING)
    if os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return ""
    if os.environ.get("OTEL_METRICS_EXPORTER", "otlp") != "otlp":
        return ""
    exact = os.environ.get("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "")
    if exact:
        return exact
    base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "")
    return _with_metrics_path(base, "OTEL_EXPORTER_OTLP_ENDPOINT") if base else ""


def _with_metrics_path(base: str, source: str) -> str:
    if not base.startswith(("http://", "https://")):
        raise UsageError(
            f"{source}={base}: http:// or https:// and an address are expected, such as "
            "http://127.0.0.1:4318"
        )
    whole = base.rstrip("/")
    return whole if whole.endswith(_PATH) else whole + _PATH


def export_interval_ms() -> int:
    """Return the time between two exports, from OpenTelemetry's standard variable."""
    text = os.environ.get("OTEL_METRIC_EXPORT_INTERVAL", "")
    if not text:
        return _INTERVAL_MS
    if not text.isdecimal() or int(text) == 0:
        raise UsageError(f"OTEL_METRIC_EXPORT_INTERVAL={text}: 1 millisecond or more is expected")
    return int(text)


def start_export(
    health_reader: Callable[[], LoopHealthReader], setting: str, *, node: str, version: str
) -> OtlpExport | None:
    """Start to send metrics if the setting or the environment names an endpoint; otherwise return
    None. If the extra is missing, raise UsageError if the setting names one, and log a warning if
    only the environment does."""
    endpoint = otlp_endpoint(setting)
    if not endpoint:
        return None
    try:
        require_extra("otlp", "opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
    except ImportError as error:
        if setting:
            raise UsageError(f"{SETTING}={setting}: {error}") from error
        _log.warning("no metrics are sent to %s: %s", endpoint, error)
        return None
    return OtlpExport(
        health_reader(), endpoint, node=node, version=version, every_ms=export_interval_ms()
    )


class OtlpExport:
    """Sends all metrics periodically, from a thread of its own."""

    def __init__(
        self, vitals: LoopHealthReader, endpoint: str, *, node: str, version: str, every_ms: int
    ) -> None:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.resources import Resource

        self._vitals = vitals
        self._every_s = every_ms / 1000
        self._version = version
        self._resource = Resource.create(
            {
                "service.name": os.environ.get("OTEL_SERVICE_NAME") or "escrowmq",
                "service.instance.id": node,
                "service.version": version,
            }
        )
        self._exporter: OTLPMetricExporter = OTLPMetricExporter(endpoint=endpoint)
        self._clock = SystemClock()
        self._began_ns = self._now_ns()
        self._stop = Event()
        self._thread = Thread(target=self._run, name="otlp", daemon=True)
        self._thread.start()
        _log.info("metrics are sent to %s every %g s", endpoint, self._every_s)

    def _now_ns(self) -> int:
        return self._clock.now_ms() * _NS_PER_MS

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self._send()
        self._send()
        self._exporter.shutdown()

    def _send(self) -> None:
        try:
            families = self._vitals.registry.collect()
            found = to_otlp(
                families, self._resource, self._version, (self._began_ns, self._now_ns())
            )
            self._exporter.export(found)  # logs by itself what it could not send
        except Exception:  # noqa: BLE001 - one background round: the next one tries again
            _log.exception("metrics could not be sent")

    async def close(self) -> None:
        """Send the metrics once more, and end."""
        self._stop.set()
        await asyncio.get_running_loop().run_in_executor(None, self._thread.join, _LAST_S)


def to_otlp(
    families: Iterable[Family], resource: Resource, version: str, span_ns: tuple[int, int]
) -> MetricsData:
    """Convert the families of /metrics to OpenTelemetry's metrics. `span_ns`: when counting began,
    and now."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [metric for one in families if (metric := _to_metric(one, span_ns)) is not None]
    scope = ScopeMetrics(InstrumentationScope(_SCOPE, version), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _to_metric(family: Family, span_ns: tuple[int, int]) -> Metric | None:
    from opentelemetry.sdk.metrics.export import (
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        Sum,
    )

    if not family.samples:
        return None
    always = AggregationTemporality.CUMULATIVE
    name = family.name
    match family.type:
        case "counter":
            name += "_total"  # as /metrics has it, so that rules work for both
            data: Sum | Gauge | Histogram = Sum(
                _number_points(family, span_ns), always, is_monotonic=True
            )
        case "histogram":
            data = Histogram(_histogram_points(family, span_ns), always)
        case _:
            data = Gauge(_number_points(family, span_ns))
    return Metric(name, family.documentation, "", data)


def _number_points(family: Family, span_ns: tuple[int, int]) -> list[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    began_ns, now_ns = span_ns
    return [
        NumberDataPoint(sample.labels, began_ns, now_ns, float(sample.value))
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]


def _histogram_points(family: Family, span_ns: tuple[int, int]) -> list[HistogramDataPoint]:
    """Convert histograms: buckets are cumulative in /metrics, and separate counts in OTLP."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    began_ns, now_ns = span_ns
    bounds: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", "")
        key = tuple(labels.items())
        if sample.name.endswith("_bucket"):
            bounds.setdefault(key, []).append((float(bound), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    found = []
    for key, buckets in bounds.items():
        counts = [count for _, count in sorted(buckets)]
        own = [count - before for before, count in zip([0, *counts[:-1]], counts, strict=True)]
        found.append(
            HistogramDataPoint(
                attributes=dict(key), start_time_unix_nano=began_ns, time_unix_nano=now_ns,
                count=counts[-1], sum=sums.get(key, 0.0), bucket_counts=own,
                explicit_bounds=[bound for bound, _ in sorted(buckets) if bound != math.inf],
                min=None, max=None,  # type: ignore[arg-type] # not known: left out
            )
        )  # fmt: skip
    return found
