"""A server sends its metrics to a real OpenTelemetry collector."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq
from tests.interop import jars
from tests.interop.ports import free_port
from tests.interop.process import Process, until
from tests.interop.servers import EscrowServer

MISSING = jars.missing_tools("go")
pytestmark = [
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
    pytest.mark.long,  # the collector takes minutes to compile; tests/harness has a receiver
]

CONFIG = """
receivers:
  otlp:
    protocols:
      http:
        endpoint: 127.0.0.1:{port}
exporters:
  debug:
    verbosity: detailed
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    metrics:
      receivers: [otlp]
      exporters: [debug]
"""


@pytest.fixture(name="receiver")
def start_receiver(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """The port of a collector, and the file in which it writes down what it got."""
    program = jars.otel_collector()
    port = free_port()
    folder = tmp_path / "collector"
    folder.mkdir()
    (folder / "config.yaml").write_text(CONFIG.format(port=port))
    process = Process(
        [str(program), "--config", f"file:{folder}/config.yaml"], folder=folder, name="collector"
    )
    log = process.errors
    try:
        until("the collector is ready", lambda: "Everything is ready" in log.read_text())
        yield port, log
    finally:
        process.kill()


def test_what_a_broker_counts_arrives_at_a_collector(
    receiver: tuple[int, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, log = receiver
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "500")
    server = EscrowServer(tmp_path / "server", escrowOtlpEndpoint=f"http://127.0.0.1:{port}")
    try:
        with escrowmq.Producer(server.nameserver, group="shop") as producer:
            producer.send("paid", b"1")
            half = producer.transaction("paid", b"2")
            half.__enter__()
        until("the pending half", lambda: "-> Name: rocketmq_half_messages" in log.read_text())
        until("the topic", lambda: "-> topic: Str(paid)" in log.read_text())
    finally:
        server.stop()
    text = log.read_text()
    for found in (
        "-> service.name: Str(escrowmq)", "-> service.instance.id: Str(broker-a)",
        "-> Name: rocketmq_messages_in_total", "-> IsMonotonic: true",
        "-> Name: escrowmq_sync_seconds", "-> DataType: Histogram",
        "-> Name: process_resident_memory_bytes",
    ):  # fmt: skip
        assert found in text, found
