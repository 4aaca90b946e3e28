"""Prometheus scrapes a server; alert rules and dashboard ask for what is there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import escrowmq
from tests.interop.ports import free_port
from tests.interop.process import Process, until
from tests.interop.servers import EscrowServer

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yaml"
PAGE = DEPLOY.parent / "docs" / "deploying.md"
BOARD = DEPLOY / "grafana" / "escrowmq.json"

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="not on this machine: prometheus"
)


class Prometheus:
    """A server that scrapes one target each second, with the alert rules."""

    def __init__(self, folder: Path, target: str) -> None:
        folder.mkdir()
        port = free_port()
        self._url = f"http://127.0.0.1:{port}/api/v1"
        jobs = [{"job_name": "escrowmq", "static_configs": [{"targets": [target]}]}]
        every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        told = {"global": every, "rule_files": [str(RULES)], "scrape_configs": jobs}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(told))
        command = [
            "prometheus", f"--config.file={folder}/prometheus.yml",
            f"--storage.tsdb.path={folder}/data", f"--web.listen-address=127.0.0.1:{port}",
        ]  # fmt: skip
        self.process = Process(command, folder=folder, name="prometheus")
        until("Prometheus has scraped", self._has_scraped, within_s=60)

    def _has_scraped(self) -> bool:
        try:
            return bool(self.query('up{job="escrowmq"} == 1'))
        except OSError:
            return False

    def ask(self, path: str, **fields: str) -> Any:
        with urllib.request.urlopen(
            f"{self._url}/{path}?{urllib.parse.urlencode(fields)}"
        ) as reply:
            found = json.load(reply)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, expression: str) -> list[Any]:
        found: list[Any] = self.ask("query", query=expression)["result"]
        return found


@pytest.fixture(name="prometheus", scope="module")
def make_prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder = tmp_path_factory.mktemp("prometheus")
    server = EscrowServer(folder / "server", escrowHttpPort=0)
    with escrowmq.Producer(server.nameserver, group="shop") as producer:
        producer.send("paid", b"1")
        half = producer.transaction("paid", b"2")
        half.__enter__()
    with escrowmq.Consumer(server.nameserver, group="mailer", topic="paid") as consumer:
        next(iter(consumer)).ack()
    http = re.search(r"http=(\S+)", server.ready)
    assert http is not None
    prometheus = Prometheus(folder / "prometheus", http[1])
    yield prometheus
    prometheus.process.kill()
    server.stop()


def expressions() -> list[str]:
    """Those of the dashboard, as Grafana sends them."""
    board = json.loads(BOARD.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    assert len(found) > 30
    return [each.replace("$broker", ".+").replace("$__rate_interval", "4m") for each in found]


def test_the_rules_are_sound_and_fire_when_they_should() -> None:
    for words in (["check", "rules", str(RULES)], ["test", "rules", "rules.test.yaml"]):
        done = subprocess.run(
            ["promtool", *words], cwd=RULES.parent, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_configurations_of_the_page_are_sound(prometheus: Prometheus, tmp_path: Path) -> None:
    scraping, scaling = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    config = tmp_path / "prometheus.yaml"
    config.write_text(scraping.replace("deploy/prometheus/rules.yaml", str(RULES)))
    words = ["promtool", "check", "config", str(config)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (trigger,) = yaml.safe_load(scaling)["spec"]["triggers"]
    assert trigger["type"] == "prometheus"
    query = trigger["metadata"]["query"]
    (found,) = until("the lag of the group", lambda: prometheus.query(query))
    assert float(found["value"][1]) >= 0


def test_every_rule_and_every_panel_can_be_evaluated(prometheus: Prometheus) -> None:
    groups = until("rules were evaluated", lambda: _evaluated(prometheus), within_s=30)
    broken = {rule["name"]: rule for group in groups for rule in group["rules"]
              if rule["health"] != "ok"}  # fmt: skip
    assert broken == {}
    for expression in expressions():
        prometheus.query(expression)


def _evaluated(prometheus: Prometheus) -> list[Any]:
    groups: list[Any] = prometheus.ask("rules")["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    return groups if rules and all(rule["health"] != "unknown" for rule in rules) else []


def test_what_the_server_says_arrives(prometheus: Prometheus) -> None:
    (pending,) = prometheus.query("sum(rocketmq_half_messages)")
    assert pending["value"][1] == "1"
    (messages,) = prometheus.query('rocketmq_messages_in_total{topic="paid"}')
    assert messages["value"][1] == "2"  # the half is one as well
    assert prometheus.query("escrowmq_sync_seconds_count")
    assert prometheus.query("escrowmq_pending_older_than")
