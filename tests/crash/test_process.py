"""How server processes begin and end: exit codes, the ready line, one line of complaint."""

from __future__ import annotations

import itertools
import re
import signal
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command

from .link import Link, read_queue, send_request
from .server import START_S, Server, command
from .writer import TOPIC

pytestmark = pytest.mark.crash

LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (INFO|WARNING) escrowmq(\.\w+)+: "
)
"""A line of the log: a time with its zone, the level, the room."""


def refused(verb: str, *options: str) -> str:
    """The one line on standard error of a server that does not start."""
    done = subprocess.run(
        command(verb, *options), capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith(f"escrowmq {verb}: ")
    return lines[0]


def on_any_ports(folder: Path) -> list[str]:
    return ["--data", str(folder), "--nameserver-port", "0", "--broker-port", "0"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_server_that_is_asked_to_end_exits_with_0_and_keeps_everything(
    tmp_path: Path, number: int
) -> None:
    folder = tmp_path / "store"
    with Server(folder) as server:
        link = Link(server.broker)
        (reply,) = link.ask_all([send_request(TOPIC, 0, b"kept", "PG", {})])
        assert reply.code == 0
        link.close()
        assert server.stop(number) == 0
        lines = server.errors.read_text().splitlines()
        assert all(LINE.match(line) for line in lines), lines
        told = [line for line in lines if "disconnected: 1 brokers unregistered" not in line]
        assert told[-2].endswith(f"{signal.Signals(number).name}: stopping")
        assert told[-1].endswith("the store is closed")
        for said in ("the store is empty", "has opened", "has registered broker-a"):
            assert sum(said in line for line in lines) == 1, (said, lines)
    assert not (folder / "abort").exists()
    with Server(folder) as server:
        link = Link(server.broker)
        assert [message.body for message in read_queue(link, TOPIC, 0)] == [b"kept"]
        link.close()


def test_signals_that_mean_nothing_stop_nothing(tmp_path: Path) -> None:
    with Server(tmp_path / "store") as server:
        for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGQUIT):
            server.process.send_signal(number)
        Link(server.broker).close()
        assert server.stop() == 0
        said = server.errors.read_text()
    for text in ("SIGUSR1 is ignored", "SIGUSR2 is ignored", "most recent call first"):
        assert text in said


def test_the_name_server_of_serve_admits_its_own_broker_from_any_address(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--set", "escrowNameServerChangesFrom=10.255.255.1") as server:
        names = Link(server.nameserver)
        (reply,) = names.ask_all([Command(code=Request.GET_BROKER_CLUSTER_INFO)])
        names.close()
        assert b"broker-a" in reply.body, server.errors.read_text()


def test_a_killed_broker_says_that_it_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Server(folder) as server:
        server.kill()
    with Server(folder) as server:
        assert "the store was not closed, and is recovered" in server.errors.read_text()


def test_a_log_on_another_disk_is_served_and_its_absence_refused(tmp_path: Path) -> None:
    folder, log = tmp_path / "store", tmp_path / "disk" / "log"
    where = ["--set", f"storePathCommitLog={log}"]
    with Server(folder, *where) as server:
        link = Link(server.broker)
        link.ask_all([send_request(TOPIC, 0, b"kept", "PG", {})])
        link.close()
        server.kill()
    assert not (folder / "commitlog").exists()
    assert list(log.iterdir())
    line = refused("serve", *on_any_ports(folder))
    assert "commitlog has no file, but" in line
    assert "storePathCommitLog" in line
    with Server(folder, *where) as server:
        link = Link(server.broker)
        assert [message.body for message in read_queue(link, TOPIC, 0)] == [b"kept"]
        link.close()


def test_ready_line_comes_when_both_doors_are_open_and_the_broker_is_registered(
    tmp_path: Path,
) -> None:
    with Server(tmp_path / "store") as server:
        for address in (server.nameserver, server.broker):
            Link(address).close()
        link = Link(server.nameserver)
        reply = link.ask(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        link.close()
        assert reply.code == 0
        assert server.broker.encode() in reply.body


@pytest.mark.parametrize(
    ("is_there", "said"), [(True, "has registered"), (False, "is unreachable; retrying")]
)
def test_broker_is_ready_when_its_name_server_knows_it_or_is_away(
    tmp_path: Path, *, is_there: bool, said: str
) -> None:
    with Server(tmp_path / "names") as names:
        address = names.nameserver
        if not is_there:
            names.kill()
        line = command("broker", "--port", "0", "--data", str(tmp_path / "b"), "-n", address)
        with subprocess.Popen(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as broker:
            assert broker.stdout is not None
            before = list(
                itertools.takewhile(lambda each: not each.startswith("escrowmq"), broker.stdout)
            )
            broker.terminate()
            broker.stdout.read()
        assert broker.returncode == 0
    assert any(said in each for each in before), before


def test_http_port_has_probes_and_figures(tmp_path: Path) -> None:
    with Server(tmp_path / "store", "--http-port", "0") as server:
        for path, said in (
            ("healthz", "alive"), ("readyz", "ready"), ("metrics", "rocketmq_storage_size_bytes"),
        ):  # fmt: skip
            with urllib.request.urlopen(f"http://{server.http}/{path}", timeout=START_S) as answer:
                assert answer.status == 200
                assert said in answer.read().decode()
        assert server.stop() == 0
        assert "Traceback" not in server.errors.read_text()


def test_data_folder_in_use_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    with Server(folder) as server:
        assert str(folder) in refused("serve", *on_any_ports(folder))
        Link(server.broker).close()


@pytest.mark.parametrize("option", ["--nameserver-port", "--broker-port"])
def test_port_in_use_is_refused(tmp_path: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        line = refused("serve", *on_any_ports(tmp_path / "store"), option, port)
    assert f"127.0.0.1:{port}" in line


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        ("transactionTimeOut=abc", ["--set", "transactionTimeOut=abc"]),
        ("transactionTimeOut=-1", ["--set", "transactionTimeOut=-1"]),
        ("flushDiskType=SOMETIMES", ["--set", "flushDiskType=SOMETIMES", "SYNC_FLUSH"]),
        ("brokerRole=SLAVE", ["--set", "brokerRole=SLAVE"]),
        ("listenPort=many", ["--set", "listenPort=many"]),
        ("messageDelayLevel=1s 5x", ["--set", "messageDelayLevel=1s 5x"]),
        ("traceOn=perhaps", ["--set", "traceOn=perhaps"]),
        ("brokerIP1=nowhere", ["--set", "brokerIP1=nowhere"]),
        ("nothing", ["--set nothing", "KEY=VALUE"]),
    ],
)
def test_bad_setting_is_refused_with_its_source_its_key_and_its_value(
    tmp_path: Path, pair: str, words: list[str]
) -> None:
    line = refused("serve", *on_any_ports(tmp_path / "store"), "--set", pair)
    for word in words:
        assert word in line


def test_bad_setting_of_a_file_is_refused_with_the_name_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "broker.conf"
    file.write_text("brokerName = b\ntransactionTimeOut = soon\n")
    line = refused("serve", *on_any_ports(tmp_path / "store"), "-c", str(file))
    assert f"{file}: transactionTimeOut=soon" in line


def test_absent_settings_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "none.conf"
    assert str(file) in refused("serve", *on_any_ports(tmp_path / "store"), "-c", str(file))


def change_settings(address: str, code: int, text: bytes) -> None:
    link = Link(address)
    reply = link.ask(code, {}, text)
    link.close()
    assert reply.code == 0, reply


def settings_of(address: str, code: int) -> dict[str, str]:
    link = Link(address)
    reply = link.ask(code, {})
    link.close()
    return dict(line.split("=", 1) for line in reply.body.decode().splitlines())


def test_settings_changed_by_requests_survive_a_kill_and_leave_the_file_alone(
    tmp_path: Path,
) -> None:
    folder, file = tmp_path / "store", tmp_path / "broker.conf"
    text = "# mine\ntransactionTimeOut = 5000\n"
    file.write_text(text)
    file.chmod(0o444)
    with Server(folder, "-c", str(file)) as server:
        change_settings(server.broker, Request.UPDATE_BROKER_CONFIG, b"transactionTimeOut=100\n")
        change_settings(server.nameserver, Request.UPDATE_NAMESRV_CONFIG, b"enableTopicList=false")
        server.kill()
    assert file.read_text() == text
    with Server(folder, "-c", str(file)) as server:
        found = settings_of(server.broker, Request.GET_BROKER_CONFIG)
        assert found["transactionTimeOut"] == "100"
        found = settings_of(server.nameserver, Request.GET_NAMESRV_CONFIG)
        assert found["enableTopicList"] == "false"
    file.chmod(0o644)
    file.write_text("transactionTimeOut = 7000\n")  # a later word of the operator
    with Server(folder, "-c", str(file)) as server:
        found = settings_of(server.broker, Request.GET_BROKER_CONFIG)
        assert found["transactionTimeOut"] == "7000"


@pytest.mark.parametrize("address", ["nowhere", "host:port", "127.0.0.1:99999"])
def test_bad_address_of_a_name_server_is_refused(tmp_path: Path, address: str) -> None:
    options = ["--data", str(tmp_path / "store"), "--port", "0", "-n", address]
    assert address in refused("broker", *options)


def test_host_that_is_not_of_this_machine_is_refused(tmp_path: Path) -> None:
    line = refused("serve", *on_any_ports(tmp_path / "store"), "--host", "192.0.2.1")
    assert "192.0.2.1" in line


def test_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("not a folder")
    assert str(file) in refused("serve", *on_any_ports(file / "store"))
