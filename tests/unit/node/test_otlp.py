"""Metrics by OTLP, received as OpenTelemetry's own protobuf."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from tests.harness.otlp_receiver import Inbox, receiver

from escrowmq.base.measure import Distribution, MetricFamily, Sample
from escrowmq.errors import UsageError
from escrowmq.node import otlp
from escrowmq.node.metrics_and_health import LoopHealthReader

FAMILIES = [
    MetricFamily(
        "depth", "gauge", "How deep.", ("topic",),
        (Sample(("T",), 3), Sample(("U",), 4.5)),
    ),
    MetricFamily("done", "counter", "How many.", (), (Sample((), 7),)),
    MetricFamily(
        "taken", "histogram", "How long.", ("topic",),
        (Distribution(("T",), ((5.0, 1), (10.0, 1), (float("inf"), 3)), 61.5),),
    ),
    MetricFamily("empty", "gauge", "Nothing yet.", ("topic",), ()),
]  # fmt: skip


@pytest.fixture
def inbox() -> Iterator[tuple[str, Inbox]]:
    with receiver() as found:
        yield found


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "METRICS_ENDPOINT", "COMPRESSION"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "50")


async def exported(setting: str, inbox: Inbox) -> tuple[str, ExportMetricsServiceRequest]:
    """What arrives after some exports."""
    loop = asyncio.get_running_loop()

    def vitals() -> LoopHealthReader:
        return LoopHealthReader(
            loop, lambda: FAMILIES, labels={"node_id": "b"}, refusal=str, version="1"
        )

    export = otlp.start_export(vitals, setting, node="b", version="1")
    assert export is not None
    try:
        await asyncio.to_thread(inbox.get, timeout=10)
        return await asyncio.to_thread(inbox.get, timeout=10)
    finally:
        await export.close()


def test_every_family_arrives_under_its_name_in_prometheus(inbox: tuple[str, Inbox]) -> None:
    address, got = inbox
    path, request = asyncio.run(exported(address, got))
    assert path == "/v1/metrics"
    (resource,) = request.resource_metrics
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert (about["service.name"], about["service.instance.id"]) == ("escrowmq", "b")
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    assert {"depth", "done_total", "taken", "escrowmq_build"} <= metrics.keys()
    assert "empty" not in metrics
    depths = {
        {each.key: each.value.string_value for each in point.attributes}["topic"]: point.as_double
        for point in metrics["depth"].gauge.data_points
    }
    assert depths == {"T": 3, "U": 4.5}
    done = metrics["done_total"].sum
    assert (done.is_monotonic, done.data_points[0].as_double) == (True, 7)
    assert done.data_points[0].time_unix_nano >= done.data_points[0].start_time_unix_nano > 0
    (taken,) = metrics["taken"].histogram.data_points
    assert (list(taken.bucket_counts), list(taken.explicit_bounds)) == ([1, 0, 2], [5, 10])
    assert (taken.count, taken.sum, taken.HasField("min")) == (3, 61.5, False)
    assert {each.key for each in taken.attributes} == {"node_id", "topic"}


def test_the_environment_alone_turns_it_on(
    inbox: tuple[str, Inbox], monkeypatch: pytest.MonkeyPatch
) -> None:
    address, got = inbox
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"{address}/")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-broker")
    path, request = asyncio.run(exported("", got))
    assert path == "/v1/metrics"
    about = request.resource_metrics[0].resource.attributes
    assert "shop-broker" in {one.value.string_value for one in about}


@pytest.mark.parametrize(
    ("setting", "variables", "endpoint"),
    [
        ("", {}, ""),
        ("http://c:4318", {}, "http://c:4318/v1/metrics"),
        ("http://c:4318/v1/metrics", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d"}, "http://c:4318/v1/metrics"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "https://d/x"}, "https://d/x/v1/metrics"),
        ("", {"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": "http://d/own"}, "http://d/own"),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d", "OTEL_METRICS_EXPORTER": "none"}, ""),
        ("", {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://d", "OTEL_SDK_DISABLED": "true"}, ""),
    ],
)  # fmt: skip
def test_where_metrics_are_sent(
    setting: str, variables: dict[str, str], endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert otlp.otlp_endpoint(setting) == endpoint


def test_a_wrong_endpoint_or_interval_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="escrowOtlpEndpoint=collector:4318: http://"):
        otlp.otlp_endpoint("collector:4318")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1m")
    with pytest.raises(UsageError, match="OTEL_METRIC_EXPORT_INTERVAL=1m: 1 millisecond"):
        otlp.export_interval_ms()


def test_without_the_extra_the_setting_is_refused_and_the_environment_is_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(extra: str, *_: str) -> None:
        raise ImportError(f"pip install 'escrowmq[{extra}]'")

    monkeypatch.setattr(otlp, "require_extra", missing)
    with pytest.raises(UsageError, match=r"escrowmq\[otlp\]"):
        otlp.start_export(lambda: None, "http://c", node="b", version="1")  # type: ignore[arg-type, return-value]
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://c")
    assert otlp.start_export(lambda: None, "", node="b", version="1") is None  # type: ignore[arg-type, return-value]
    assert "escrowmq[otlp]" in caplog.text
