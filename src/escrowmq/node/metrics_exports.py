"""Exports metrics according to the settings: served to Prometheus on a port, sent by OTLP."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Final, Protocol

from escrowmq.base.measure import MetricFamily
from escrowmq.node.addresses import host_and_port
from escrowmq.node.config import NodeSettings

if TYPE_CHECKING:
    from escrowmq.node.metrics_and_health import LoopHealthReader
    from escrowmq.node.metrics_port import MetricsServer
    from escrowmq.node.otlp import OtlpExport

_OTLP: Final = "OTEL_EXPORTER_OTLP_"
"""The prefix of OpenTelemetry's variables. Its packages are loaded only if one of these variables,
or the setting, is set."""


class MetricsSource(Protocol):
    """A source of metrics: a broker, or a member of a group with its current broker."""

    labels: dict[str, str]
    build: str

    @property
    def metrics_instance(self) -> str:
        """A name that is unique in the cluster, as a label of metrics."""

    def measure(self) -> list[MetricFamily]:
        """Return the metrics."""

    def write_refusal_reason(self) -> str:
        """The reason why the server accepts no messages; empty if it does."""

    def health_reader(self, loop: asyncio.AbstractEventLoop) -> LoopHealthReader:
        """Return an object with which other threads can read the server's health."""


class MetricsExports:
    """The metrics exporters of a process."""

    def __init__(self) -> None:
        self._exporter: MetricsServer | None = None
        self._otlp: OtlpExport | None = None

    def open(self, source: MetricsSource, node: NodeSettings, *, host: str) -> dict[str, str]:
        """Serve and send metrics as far as the settings say so; return the open port."""
        loop = asyncio.get_running_loop()
        if node.otlp or any(name.startswith(_OTLP) for name in os.environ):
            from escrowmq.node.otlp import start_export

            self._otlp = start_export(
                lambda: source.health_reader(loop), node.otlp, node=source.metrics_instance,
                version=source.build,
            )  # fmt: skip
        if node.exporter != "PROM":
            return {}
        from escrowmq.node.metrics_port import MetricsServer

        host = node.exporter_host or host
        self._exporter = MetricsServer(
            source.measure,
            labels=source.labels,
            host=host,
            port=node.exporter_port,
            refusal=source.write_refusal_reason,
            version=source.build,
        )
        return {"metrics": host_and_port(host, self._exporter.port)}

    async def close(self) -> None:
        """Send the metrics once more, and close the exporters."""
        if self._otlp is not None:
            await self._otlp.close()
        if self._exporter is not None:
            await self._exporter.close()
