"""The files in deploy/ agree with the program: commands, ports, settings, releases. `make
deployment` checks that each file is valid for the tool that reads it."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from escrowmq.base.measure import MetricFamily
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.base.release import RELEASE
from escrowmq.cli.main import build_parser
from escrowmq.net.loop_turns import sync_lengths, turn_lengths
from escrowmq.node import config, grpc_port, http_port, serve
from escrowmq.node.broker_ports import HA_PORT_OFFSET
from escrowmq.registry.core import RegistryCore
from tests.harness.exchange import Exchange
from tests.harness.group import GroupWorld
from tests.harness.pair import Pair

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm" / "escrowmq"
DOCKERFILE = (DEPLOY / "docker" / "Dockerfile").read_text()
UNIT = (DEPLOY / "systemd" / "escrowmq.service").read_text()
POD = (CHART / "templates" / "statefulset.yaml").read_text()
PORTS = {serve.NAMESERVER_PORT, serve.BROKER_PORT, grpc_port.DEFAULT_GRPC_PORT, http_port.DEFAULT}


def said(text: str, pattern: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    assert found is not None, pattern
    return found[1]


def arguments_of(text: str) -> list[list[str]]:
    """What containers of a template are given."""
    found = re.findall(r"args:\n((?: +- .*\n)+)", text)
    return [[line.strip().removeprefix("- ") for line in lines.splitlines()] for lines in found]


def test_every_command_is_one_that_the_program_takes() -> None:
    member, pod = arguments_of(POD)
    (nameserver,) = arguments_of((CHART / "templates" / "nameserver.yaml").read_text())
    unit = shlex.split(said(UNIT, r"^ExecStart=\S*/escrowmq (.*)$"))
    image = json.loads(said(DOCKERFILE, r"^CMD (\[.*\])$"))
    for words in (pod, unit, image):
        arguments = build_parser().parse_args(words)
        assert arguments.verb == "serve"
        assert arguments.data
    assert build_parser().parse_args(member).grpc_port == grpc_port.DEFAULT_GRPC_PORT
    assert build_parser().parse_args(nameserver).verb == "nameserver"
    probe = json.loads(said(DOCKERFILE, r"HEALTHCHECK .* CMD (\[.*\])$"))[-1]
    assert build_parser().parse_args(probe.partition(" ||")[0].split()[1:]).verb == "health"


def test_every_port_of_the_program_is_opened_and_no_other() -> None:
    assert {int(port) for port in said(DOCKERFILE, r"^EXPOSE (.*)$").split()} == PORTS
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    mapped = [entry.split(":") for entry in compose["services"]["escrowmq"]["ports"]]
    assert all(host == "127.0.0.1" and outer == inner for host, outer, inner in mapped)
    assert {int(inner) for *_, inner in mapped} == PORTS
    copies = serve.BROKER_PORT + HA_PORT_OFFSET
    assert {int(port) for port in re.findall(r"containerPort: (\d+)", POD)} == PORTS | {copies}
    service = (CHART / "templates" / "service.yaml").read_text().partition("---")[0]
    assert {int(port) for port in re.findall(r" port: (\d+)", service)} == PORTS


def test_settings_are_known_and_reach_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.yaml").read_text())
    given = compose["services"]["escrowmq"]["environment"]
    assert set(given) == {config.SET_ENV}
    monkeypatch.setenv(config.SET_ENV, given[config.SET_ENV])
    found = config.gather_settings(None, [])
    assert found == {"brokerIP1": "127.0.0.1"}
    assert f"- name: {config.SET_ENV}\n" in POD
    chart = (CHART / "templates" / "configmap.yaml").read_text()
    named = set(re.findall(r"^ {4}([\w.]+)=", chart, re.MULTILINE))
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    named |= set(values["settings"]) | set(found)
    assert config.unknown_keys(dict.fromkeys(named, "")) == []


def test_members_of_the_compose_file_are_one_group_on_one_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compose = yaml.safe_load((DEPLOY / "docker" / "compose.group.yaml").read_text())
    assert {one.get("network_mode") for one in compose["services"].values()} == {"host"}
    ports: list[int] = []
    names = set()
    for name, service in compose["services"].items():
        if name == "etcd":
            assert "--listen-client-urls=http://127.0.0.1:2379" in service["command"]
            continue
        arguments = build_parser().parse_args(service["command"])
        if name == "nameserver":
            continue
        monkeypatch.setenv(config.SET_ENV, service["environment"][config.SET_ENV])
        found = config.gather_settings(None, [])
        group = config.read_group_settings(found, authority=arguments.authority, source="compose")
        assert group is not None
        assert (group.authority, found["brokerName"]) == ("etcd://127.0.0.1:2379", "orders")
        assert group.secret_file == f"/run/secrets/{service['secrets'][0]}"
        assert service["environment"]["ESCROWMQ_HTTP"] == f"127.0.0.1:{arguments.http_port}"
        ports += [arguments.port, arguments.port + HA_PORT_OFFSET, arguments.grpc_port]
        ports += [arguments.http_port]
        names.add(group.member)
    assert names == {"a", "b", "c"}
    assert len(set(ports)) == len(ports) == 12


@pytest.mark.parametrize("name", ["compose.yaml", "compose.group.yaml"])
def test_services_that_get_secrets_from_variables_have_a_writable_root(name: str) -> None:
    """Compose copies them into the container, and refuses to start one that is read-only."""
    compose = yaml.safe_load((DEPLOY / "docker" / name).read_text())
    copied = {key for key, one in compose.get("secrets", {}).items() if "file" not in one}
    for service in compose["services"].values():
        assert not (service.get("read_only") and copied & set(service.get("secrets", ())))


def test_the_unit_can_read_the_settings_that_only_root_can_read() -> None:
    """Its user is made for it at each start; the server ended with "Permission denied"."""
    page = (ROOT / "docs" / "deploying.md").read_text()
    settings = said(page, r"install -D -m 0600 /dev/null (\S+)$")
    assert "DynamicUser=yes" in UNIT
    assert said(UNIT, r"^LoadCredential=broker\.conf:(\S+)$") == settings
    assert said(UNIT, r"^ExecStart=.* -c (\S+)$") == "${CREDENTIALS_DIRECTORY}/broker.conf"


def test_the_chart_asks_for_the_rights_that_the_authority_needs() -> None:
    page = (ROOT / "docs" / "authority.md").read_text()
    role = (CHART / "templates" / "authority.yaml").read_text()
    pattern = r"resources: \[configmaps\]\s+verbs: (.*)"
    assert said(page, pattern) == said(role, pattern)


def test_the_chart_has_a_schema_for_all_of_its_values() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) == {*values, "global"}
    for name, inner in values.items():
        wanted = schema["properties"][name]
        if wanted.get("additionalProperties") is False:
            assert set(wanted["properties"]) == set(inner), name


def test_chart_image_and_unit_run_as_one_user_of_one_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == RELEASE
    uid = said(DOCKERFILE, r"--uid (\d+)")
    assert said(DOCKERFILE, r"^USER (\S+)$") == f"{uid}:{uid}"
    parts = (CHART / "templates" / "_helpers.tpl").read_text()
    assert said(parts, r"runAsUser: (\d+)") == said(parts, r"fsGroup: (\d+)") == uid
    assert "Type=notify" in UNIT


def of_replicas() -> list[MetricFamily]:
    """What a master and a slave, and the members of a group export."""
    pair, world = Pair(), GroupWorld(1)
    world.start_all()
    world.until(world.are_in_sync)
    brokers = [pair.master, pair.slave, *(host.broker for host in world.hosts.values())]
    return [one for each in brokers if each is not None for one in each.core.measure(each.now_ms)]


def test_the_dashboard_is_that_of_its_table_and_its_metrics_are_exported() -> None:
    spec = importlib.util.spec_from_file_location("dashboard", ROOT / "tools" / "dashboard.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    board = (DEPLOY / "grafana" / "escrowmq.json").read_text()
    assert board == tool.text(), "run tools/dashboard.py"
    exchange = Exchange()
    names = RegistryCore(NameServerSettings(), started_ms=0)
    families = [*exchange.core.measure(exchange.now_ms), *names.measure()]
    families += [
        *turn_lengths().metric_families(),
        *sync_lengths().metric_families(),
        *of_replicas(),
    ]
    exported = {f"{one.name}_total" if one.kind == "counter" else one.name for one in families}
    rules = (DEPLOY / "prometheus" / "rules.yaml").read_text()
    named = set(re.findall(r"\b(?:escrowmq|rocketmq)_[a-z_]+[a-z]", board + rules))
    assert {re.sub(r"_(bucket|count|sum)$", "", name) for name in named} <= exported
