"""docs/running.md says what the code does: ports, variables, versions of clients."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.cli.main import build_parser
from escrowmq.node import grpc_port, http_port, serve
from escrowmq.node.broker_ports import HA_PORT_OFFSET
from escrowmq.node.config import NodeSettings
from tests.interop import jars

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "escrowmq"
PAGE = (ROOT / "docs" / "running.md").read_text()
_OTHERS = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_GATEWAY_PORT", "PATH_INFO"}
"""Python's and Spark's own, and a name of WSGI."""
_GIVEN_ITS_NAME = {"self.secret_key_env"}
"""A variable whose name the user chooses."""


def section(title: str) -> str:
    found = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    assert found, title
    return found


def rows(title: str) -> list[list[str]]:
    lines = [line for line in section(title).splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]


def _read_of_the_environment() -> Iterator[str]:
    """What is between the brackets wherever the environment is read."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            is_get = isinstance(node, ast.Call) and ast.unparse(node.func) == "os.environ.get"
            if is_get:
                assert isinstance(node, ast.Call)
                yield ast.unparse(node.args[0])


def _constant(name: str) -> str:
    """The value of a constant that has a name of its own in the whole source."""
    found: set[str] = {
        value
        for path in SOURCE.rglob("*.py")
        for value in re.findall(rf'^{name}(?:: Final)? = "(\w+)"', path.read_text(), re.MULTILINE)
    }
    (value,) = found
    return value


def test_every_variable_that_is_read_is_listed_and_no_other() -> None:
    read = {*_read_of_the_environment()} - _GIVEN_ITS_NAME
    names = {each.strip("'") if each.startswith("'") else _constant(each) for each in read}
    names |= {_constant("ACCESS_ENV")}
    listed = {name for row in rows("Environment variables") for name in row[0].split(", ")}
    assert {name.strip("`") for name in listed} == names - _OTHERS


def test_the_ports_are_those_of_the_code() -> None:
    said = [int(row[0]) for row in rows("Ports")]
    assert said == [
        serve.NAMESERVER_PORT,
        serve.BROKER_PORT,
        grpc_port.DEFAULT_GRPC_PORT,
        http_port.DEFAULT,
        serve.BROKER_PORT + HA_PORT_OFFSET,
        NodeSettings().exporter_port,
    ]


def test_the_flags_and_keys_of_the_ports_are_there() -> None:
    keys = {*NodeSettings.__struct_encode_fields__, *ReplicaSettings.__struct_encode_fields__}
    for verb, flags in (
        ("serve", ["--nameserver-port", "--broker-port", "--grpc-port", "--http-port"]),
        ("broker", ["--port", "--grpc-port", "--http-port"]),
        ("nameserver", ["--port"]),
    ):
        for flag in flags:
            assert f"`{flag}`" in section("Ports")
            build_parser().parse_args([verb, flag, "0"])
    named = re.findall(r"`(\w+Port)`", section("Ports"))
    assert {*named} <= keys


def test_the_versions_of_clients_are_those_of_the_tests() -> None:
    said = {row[0]: row[1] for row in rows("Client versions")}
    remoting = said["Java, remoting (`rocketmq-client`)"].split(", ")
    assert {*remoting} == {*jars.CLIENT_RELEASES}
    brokers = said["brokers and name servers beside ours"].split(", ")
    assert {*brokers} == {jars.BROKER_RELEASE, jars.ACL_BROKER_RELEASE, jars.OLD_BROKER_RELEASE}
    for client, file, pattern in (
        ("Go, remoting (`rocketmq-client-go`)", "tests/interop/go/go.mod",
         r"rocketmq-client-go/v2 v([\d.]+)"),
        ("Python, gRPC (`rocketmq-python-client`)", "requirements-dev.txt",
         r"rocketmq-python-client==([\d.]+)"),
        ("Java, gRPC (`rocketmq-client-java`)", "tests/v5/java/pom.xml",
         r"<rocketmq.version>([\d.]+)<"),
        ("Go, gRPC (`rocketmq-clients/golang`)", "tests/v5/go/go.mod", r"golang/v5 v([\d.]+)"),
        ("Node.js, gRPC (`rocketmq-client-nodejs`)", "tests/v5/node/package.json",
         r'"rocketmq-client-nodejs": "([\d.]+)"'),
        ("Rust, gRPC (`rocketmq`)", "tests/v5/rust/Cargo.toml", r'rocketmq = "=([\d.]+)"'),
    ):  # fmt: skip
        (pinned,) = {*re.findall(pattern, (ROOT / file).read_text())}
        assert said[client] == pinned, client
