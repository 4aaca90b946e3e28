from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import urllib.error
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from escrowmq.base.measure import Distribution, MetricFamily, Sample
from escrowmq.errors import ConnectFailed
from escrowmq.node.metrics_port import MetricsServer
from escrowmq.node.small_http_server import THREADS_MAX

LABELS = {"cluster": "c", "node_id": "b"}
FAMILIES = [
    MetricFamily(
        "depth", "gauge", "How deep.", ("topic",),
        (Sample(("T",), 3), Sample(('"é\n',), 4.5)),
    ),
    MetricFamily("done", "counter", "How many.", (), (Sample((), 7),)),
    MetricFamily(
        "taken", "histogram", "How long.", ("topic",),
        (Distribution(("T",), ((5.0, 1), (float("inf"), 3)), 61.5),),
    ),
]  # fmt: skip


def fetch(port: int, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        text: str = answer.read().decode()
        return text


async def served(families: list[MetricFamily]) -> str:
    exporter = MetricsServer(lambda: families, labels=LABELS, host="127.0.0.1", port=0)
    try:
        return await asyncio.to_thread(fetch, exporter.port)
    finally:
        await exporter.close()


def test_figures_are_served_as_prometheus_reads_them() -> None:
    text = asyncio.run(served(FAMILIES))
    found = {
        (sample.name, sample.labels.get("topic"), sample.labels.get("le")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.labels.items() >= LABELS.items() and sample.name != "escrowmq_build"
    }
    assert found == {
        ("depth", "T", None): 3,
        ("depth", '"é\n', None): 4.5,
        ("done_total", None, None): 7,
        ("taken_bucket", "T", "5.0"): 1,
        ("taken_bucket", "T", "+Inf"): 3,
        ("taken_count", "T", None): 3,
        ("taken_sum", "T", None): 61.5,
    }


def test_failure_to_read_is_an_error_of_that_request_alone() -> None:
    answers = iter([None, FAMILIES])

    def read() -> list[MetricFamily]:
        found = next(answers)
        if found is None:
            raise RuntimeError("no figures now")
        return found

    async def main() -> str:
        exporter = MetricsServer(read, labels=LABELS, host="127.0.0.1", port=0)
        try:
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(fetch, exporter.port)
            refused.value.close()
            return await asyncio.to_thread(fetch, exporter.port)
        finally:
            await exporter.close()

    assert "done_total" in asyncio.run(main())


def test_port_in_use_is_told() -> None:
    async def main() -> None:
        first = MetricsServer(list, labels={}, host="127.0.0.1", port=0)
        try:
            with pytest.raises(ConnectFailed, match="metricsPromExporterPort"):
                MetricsServer(list, labels={}, host="127.0.0.1", port=first.port)
        finally:
            await first.close()

    asyncio.run(main())


def test_health_is_a_page_of_its_own() -> None:
    why = [""]

    async def both() -> tuple[str, str]:
        exporter = MetricsServer(
            lambda: FAMILIES, labels=LABELS, host="127.0.0.1", port=0, refusal=lambda: why[0]
        )
        try:
            ready = await asyncio.to_thread(fetch, exporter.port, "/health")
            why[0] = "the disk is full"
            with pytest.raises(urllib.error.HTTPError) as refused:
                await asyncio.to_thread(fetch, exporter.port, "/health")
            assert refused.value.code == 503
            with refused.value as answer:
                return ready, answer.read().decode()
        finally:
            await exporter.close()

    assert asyncio.run(both()) == ("ready\n", "read-only: the disk is full\n")


def test_process_and_build_are_told() -> None:
    text = asyncio.run(served([]))
    assert 'escrowmq_build{cluster="c",node_id="b",version=""} 1.0' in text
    assert "process_resident_memory_bytes" in text


def test_half_requests_take_few_threads_and_keep_nobody_out() -> None:
    async def main() -> None:
        exporter = MetricsServer(lambda: FAMILIES, labels=LABELS, host="127.0.0.1", port=0)
        halves = [socket.create_connection(("127.0.0.1", exporter.port)) for _ in range(40)]
        try:
            for half in halves:
                half.settimeout(20)
                half.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert "done_total" in await asyncio.to_thread(fetch, exporter.port)
            # The oldest are cut, which end with no answer.
            ended = [await asyncio.to_thread(half.recv, 1) for half in halves[: 40 - THREADS_MAX]]
            assert ended == [b""] * (40 - THREADS_MAX)
            threads = [each for each in threading.enumerate() if "process_request" in each.name]
            while len(alive := [each for each in threads if each.is_alive()]) > THREADS_MAX:
                alive[0].join(0.1)
            assert "done_total" in await asyncio.to_thread(fetch, exporter.port)
        finally:
            for half in halves:
                half.close()
            await exporter.close()

    asyncio.run(main())


def test_who_sends_a_byte_now_and_then_is_cut_all_the_same() -> None:
    async def main() -> None:
        exporter = MetricsServer(
            lambda: FAMILIES, labels=LABELS, host="127.0.0.1", port=0, patience_s=0.5
        )
        try:
            with socket.create_connection(("127.0.0.1", exporter.port), timeout=20) as slow:
                sent = 0
                slow.sendall(b"GET /")
                slow.settimeout(0.05)
                while True:
                    with contextlib.suppress(TimeoutError):
                        if not await asyncio.to_thread(slow.recv, 1):
                            break
                    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                        slow.sendall(b"x")
                    sent += 1
                assert sent < 200
        finally:
            await exporter.close()

    asyncio.run(main())
