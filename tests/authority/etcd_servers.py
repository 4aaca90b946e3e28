"""etcd as processes of a test's own, from the distribution's package."""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from tests.harness.certificates import Pair
from tests.interop.ports import free_port
from tests.interop.process import Process, until


def missing() -> str:
    """Empty when etcd is here."""
    return "" if shutil.which("etcd") else "etcd-server"


class EtcdNode:
    """One server of a cluster; it can be killed, stalled, and started again on its data."""

    def __init__(self, folder: Path, name: str, tls: tuple[Path, Pair] | None = None) -> None:
        self.name = name
        self.folder = folder / name
        self.port, self.peer_port = free_port(), free_port()
        self._tls = tls
        self._process: Process | None = None
        self._is_stalled = False

    @property
    def peer_url(self) -> str:
        return f"http://127.0.0.1:{self.peer_port}"

    @property
    def client_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def start(self, members: str) -> None:
        """Start it on what its folder holds."""
        self._process = Process(
            ["etcd", "--name", self.name, "--data-dir", str(self.folder / "data"),
             "--listen-client-urls", self.client_url, "--advertise-client-urls", self.client_url,
             "--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url,
             "--initial-cluster", members, "--heartbeat-interval", "50",
             "--election-timeout", "500", "--logger", "zap", "--log-level", "error",
             *self._tls_options()],
            folder=self.folder, name=self.name,
        )  # fmt: skip

    def _tls_options(self) -> list[str]:
        if self._tls is None:
            return []
        root, pair = self._tls
        return ["--cert-file", str(pair.certificate), "--key-file", str(pair.key),
                "--trusted-ca-file", str(root), "--client-cert-auth"]  # fmt: skip

    def kill(self) -> None:
        """kill -9; nothing if it is dead."""
        if self._process is not None:
            self.resume()
            self._process.kill()
            self._process = None

    def stall(self) -> None:
        """SIGSTOP: connections are accepted, and nothing is answered."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGSTOP)
        self._is_stalled = True

    def resume(self) -> None:
        """SIGCONT."""
        if self._is_stalled and self._process is not None:
            os.kill(self._process.pid, signal.SIGCONT)
        self._is_stalled = False


class EtcdCluster:
    """One server, or three that elect a leader."""

    def __init__(self, folder: Path, count: int, tls: tuple[Path, Pair] | None = None) -> None:
        self.nodes = [EtcdNode(folder, f"n{each}", tls) for each in range(count)]
        self._members = ",".join(f"{node.name}={node.peer_url}" for node in self.nodes)
        self.hosts = ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)
        self.url = f"etcd://{self.hosts}/test"
        self._has_tls = tls is not None
        for node in self.nodes:
            node.start(self._members)
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise

    def restart(self, node: EtcdNode) -> None:
        """Start a server that was killed."""
        node.start(self._members)

    def wait(self) -> None:
        """Until every server answers."""
        if self._has_tls:
            return  # it talks to those with a certificate alone
        for node in self.nodes:
            until("etcd answers", lambda node=node: _is_healthy(node.client_url))  # type: ignore[misc]

    def leader(self) -> EtcdNode:
        """The server that leads the others."""
        for node in self.nodes:
            status = call(node.client_url, "maintenance/status", {})
            if status["leader"] == status["header"]["member_id"]:
                return node
        raise AssertionError("no leader")

    def stop(self) -> None:
        """Kill all servers."""
        for node in self.nodes:
            node.kill()


def call(url: str, name: str, body: dict[str, Any], token: str = "") -> Any:
    """A call of the JSON gateway, as a person with curl makes it."""
    request = urllib.request.Request(
        f"{url}/v3/{name}", json.dumps(body).encode(), {"Authorization": token} if token else {}
    )
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def _is_healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(json.load(answer)["health"] == "true")
    except (urllib.error.URLError, OSError):
        return False
