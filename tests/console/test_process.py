"""The console as a process: in `escrowmq serve`, and alone."""

from __future__ import annotations

import signal
import socket
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from escrowmq.console.options import LocalUser
from tests.crash.server import START_S, Server, command
from tests.harness.certificates import OPENSSL, Authority
from tests.harness.console import Browser, until


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def admin(password: str) -> LocalUser:
    return LocalUser(name="admin", password=password, may_change=True)


def own_address() -> str:
    """The address of this machine that others know, if it has one; else that of loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect(("198.51.100.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(asked.getsockname()[0])


def test_the_console_settles_where_the_broker_listens_on_another_address(tmp_path: Path) -> None:
    host = own_address()
    where = ["--host", "0.0.0.0", "--set", f"brokerIP1={host}", "--http-port", "0"]
    with Server(tmp_path / "store", *where) as server:
        assert server.broker.startswith((f"{host}:", "0.0.0.0:"))
        browser = Browser(port_of(server.http))
        password = (tmp_path / "store" / "config" / "consolePassword").read_text().strip()
        assert browser.log_in(admin(password)).status == 303
        page = browser.get("/transactions")
        assert page.status == 200, page.words()
        assert "event=denial" not in server.errors.read_text()


def test_serve_has_a_console_and_says_where_its_password_is(tmp_path: Path) -> None:
    options = ("--http-port", "0", "--console-proxies", "127.0.0.1")
    with Server(tmp_path / "store", *options) as server:
        said = server.errors.read_text()
        path = tmp_path / "store" / "config" / "consolePassword"
        assert f"the console: http://{server.http}/" in said
        assert str(path) in said
        password = path.read_text().strip()
        assert password not in said
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        browser = Browser(port_of(server.http), {"X-Forwarded-For": "198.51.100.7"})
        assert browser.log_in(admin("a guess at it")).status == 401
        assert "peer=198.51.100.7" in server.errors.read_text()
        assert browser.log_in(admin(password)).status == 303
        page = browser.get("/")
        assert page.status == 200
        assert "broker-a" in page.words()
        assert browser.get("/readyz").text == "ready\n"
        assert "rocketmq_storage_size_bytes" in browser.get("/metrics").text
        assert server.stop() == 0
        said = server.errors.read_text()
        assert "Traceback" not in said
        assert "uvicorn" not in said


def test_serve_with_accounts_logs_these_in(tmp_path: Path) -> None:
    folder = tmp_path / "store" / "config"
    folder.mkdir(parents=True)
    (folder / "plain_acl.yml").write_text(
        "accounts: [{accessKey: operator1, secretKey: secret-of-operator, admin: true}]\n"
    )
    (folder / "plain_acl.yml").chmod(0o600)
    with Server(tmp_path / "store", "--http-port", "0", "--set", "aclEnable=true") as server:
        assert not (folder / "consolePassword").exists()
        browser = Browser(port_of(server.http))
        user = LocalUser(name="operator1", password="secret-of-operator", may_change=True)
        assert browser.log_in(user).status == 303
        assert "broker-a" in browser.get("/").words()


@pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")
def test_a_console_beside_a_broker_that_refuses_plain_bytes_speaks_tls(tmp_path: Path) -> None:
    pair = Authority(tmp_path / "ca").sign("server")
    terms = {
        "tls.server.mode": "enforcing",
        "tls.server.certPath": pair.certificate,
        "tls.server.keyPath": pair.key,
    }
    options = [word for name, value in terms.items() for word in ("--set", f"{name}={value}")]
    with Server(tmp_path / "store", "--http-port", "0", *options) as server:
        password = (tmp_path / "store" / "config" / "consolePassword").read_text().strip()
        browser = Browser(port_of(server.http))
        assert browser.log_in(admin(password)).status == 303
        page = browser.get("/")
        assert (page.status, "broker-a" in page.words()) == (200, True)


def test_a_broker_alone_has_a_console_when_it_is_asked_for(tmp_path: Path) -> None:
    with Server(tmp_path / "names", "--http-port", "-1") as names:
        process = subprocess.Popen(
            command("broker", "-n", names.nameserver, "--port", "0", "--http-port", "0",
                    "--data", str(tmp_path / "alone"), "--set", "brokerName=broker-b"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            browser = Browser(port_of(line.strip()))
            password = (tmp_path / "alone" / "config" / "consolePassword").read_text().strip()
            assert browser.log_in(admin(password)).status == 303
            until(lambda: "broker-b" in browser.get("/").words())
        finally:
            watchdog.cancel()
            process.terminate()
            process.communicate(timeout=START_S)


def test_a_console_alone_looks_at_a_cluster_elsewhere(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("a long password")
    with Server(tmp_path / "store", "--http-port", "-1") as server:
        process = subprocess.Popen(
            command("console", "-n", server.nameserver, "--http-port", "0",
                    "--console-password-file", str(password)),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip
        watchdog = threading.Timer(START_S, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None
            line = process.stdout.readline().strip()
            assert line.startswith("escrowmq ready http=127.0.0.1:")
            browser = Browser(port_of(line))
            assert browser.log_in().status == 303
            assert "broker-a" in browser.get("/").words()
            assert browser.get("/readyz").status == 200
            assert browser.get("/metrics").status == 404
            process.send_signal(signal.SIGTERM)
            assert process.wait(START_S) == 0
        finally:
            watchdog.cancel()
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-n", "nowhere", "--http-port", "0"], "host:port"),
        (
            ["-n", "127.0.0.1:9", "--http-port", "0", "--console-password-file", "/nowhere"],
            "/nowhere",
        ),
        (
            ["-n", "127.0.0.1:9", "--http-port", "0", "--console-proxies", "10.0.0.1/8"],
            "'10.0.0.1/8' is no address or network of a proxy: 10.0.0.1/8 has host bits set",
        ),
    ],
)
def test_a_console_that_cannot_start_says_why_in_one_line(options: list[str], said: str) -> None:
    done = subprocess.run(
        command("console", *options), capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("escrowmq console: ")
    assert done.stderr.count("\n") == 1
    assert said in done.stderr
