"""A broker's process serves and sends its metrics, and so does a member of a group."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from tests.harness.otlp_receiver import receiver

PATIENCE_S = 60
NOBODY = "127.0.0.1:1"
"""Nothing listens there: the broker is not registered, the member waits for its authority."""


@pytest.mark.parametrize(
    ("options", "instance"),
    [
        ((), "b"),
        (("--authority", f"etcd://{NOBODY}", "--set", "escrowMember=one"), "b/one"),
    ],
    ids=["alone", "member"],
)  # fmt: skip
def test_metrics_of_a_process_go_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], instance: str
) -> None:
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "100")
    with receiver() as (address, got):
        command = [
            sys.executable, "-m", "escrowmq", "--log-level", "error", "broker", "--port", "0",
            "-n", NOBODY, "--data", str(tmp_path), "--set", "brokerName=b",
            "--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0",
            "--set", f"escrowOtlpEndpoint={address}", *options,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
            try:
                assert child.stdout is not None
                doors = dict(re.findall(r"(\w+)=(\S+)", child.stdout.readline()))
                url = f"http://{doors['metrics']}/metrics"
                with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
                    served = answer.read().decode()
                _, request = got.get(timeout=PATIENCE_S)
            finally:
                child.send_signal(signal.SIGTERM)
        assert child.returncode == 0
    assert re.search(r'rocketmq_\w+\{cluster="DefaultCluster",node_id="b"', served)
    (resource,) = request.resource_metrics
    about = {one.key: one.value.string_value for one in resource.resource.attributes}
    assert about["service.instance.id"] == instance
    sent = {one.name for one in resource.scope_metrics[0].metrics}
    assert {"escrowmq_build", "rocketmq_broker_permission"} <= sent
