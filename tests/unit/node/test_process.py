"""What systemd is told of a server's life."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.node.process import print_ready_line


@pytest.fixture(name="systemd")
def make_systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
        channel.bind(path)
        monkeypatch.setenv("NOTIFY_SOCKET", path)
        channel.settimeout(10)
        yield channel


def test_systemd_is_notified_once_every_port_is_open(
    systemd: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    print_ready_line(nameserver="127.0.0.1:9876", broker="127.0.0.1:10911")
    assert systemd.recv(1_000).decode().splitlines() == [
        "READY=1",
        "STATUS=nameserver=127.0.0.1:9876 broker=127.0.0.1:10911",
    ]
    assert capsys.readouterr().out.startswith("escrowmq ready nameserver=")


def test_a_server_starts_although_systemd_cannot_be_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "nobody"))
    with caplog.at_level(logging.WARNING):
        print_ready_line(broker="127.0.0.1:10911")
    assert "NOTIFY_SOCKET" in caplog.text
