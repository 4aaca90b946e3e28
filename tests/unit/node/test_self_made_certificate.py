"""The certificate that a server makes for its gRPC port, where none was given to it."""

from __future__ import annotations

import logging
import os
import ssl
import sys
from pathlib import Path

import pytest

from escrowmq.net.tls import TlsSession
from escrowmq.node.config import convert_settings, gather_settings
from escrowmq.node.connection_settings import ConnectionSettings
from escrowmq.node.self_made_certificate import (
    FILE,
    ORGANIZATION,
    make_certificate,
    self_signed_tls,
)

NAMES = ("localhost", "127.0.0.1", "::1", "broker-a.example")


def settings_of(*pairs: str) -> ConnectionSettings:
    return convert_settings(ConnectionSettings, gather_settings(None, list(pairs)), source="--set")


def test_it_is_made_once_and_its_owner_alone_can_read_it(tmp_path: Path) -> None:
    made = self_signed_tls(settings_of(), data=str(tmp_path), names=NAMES)
    assert made is not None
    assert made.mode == "permissive"
    file = tmp_path / FILE
    assert file.stat().st_mode & 0o777 == 0o600
    before = file.read_bytes()
    assert self_signed_tls(settings_of(), data=str(tmp_path), names=NAMES) is not None
    assert file.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_it_names_the_machine_and_says_that_it_proves_nothing(tmp_path: Path) -> None:
    made = self_signed_tls(settings_of(), data=str(tmp_path), names=NAMES)
    assert made is not None
    trusting = ssl.create_default_context(cafile=str(tmp_path / FILE))
    server = TlsSession(made.certificates.context, is_server=True)
    client = TlsSession(trusting, is_server=False, host="broker-a.example")
    client.decrypt(b"")
    while not (client.is_open and server.is_open):
        server.decrypt(client.pending_bytes())
        client.decrypt(server.pending_bytes())
    shown = client.peer_certificate()
    assert shown is not None
    subject = {key: value for ((key, value),) in shown["subject"]}
    assert subject["organizationName"] == ORGANIZATION
    names = {name for _, name in shown["subjectAltName"]}
    assert {"localhost", "127.0.0.1", "broker-a.example"} <= names
    assert shown["notAfter"].endswith("9999 GMT")


def test_it_can_be_turned_off_and_gives_way_to_a_certificate_of_the_users_own(
    tmp_path: Path,
) -> None:
    for pair in ("tls.test.mode.enable=false", "tls.server.mode=disabled", "tls.server.certPath=x"):
        assert self_signed_tls(settings_of(pair), data=str(tmp_path), names=NAMES) is None
    assert list(tmp_path.iterdir()) == []


def test_where_none_can_be_made_the_server_says_so_and_starts_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    with caplog.at_level(logging.WARNING):
        assert self_signed_tls(settings_of(), data=str(tmp_path), names=NAMES) is None
    assert "has no TLS" in caplog.text


@pytest.mark.parametrize("left", ["", "no certificate"])
def test_one_that_cannot_be_used_is_made_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, left: str
) -> None:
    """A loss of power left an empty one, and the port had no TLS until somebody removed it."""
    (tmp_path / FILE).write_text(left)
    assert self_signed_tls(settings_of(), data=str(tmp_path), names=NAMES) is not None
    assert "is made again" in caplog.text
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_what_a_killed_process_with_the_same_number_left_does_not_hinder(tmp_path: Path) -> None:
    (tmp_path / f"{FILE}.{os.getpid()}").touch()
    make_certificate(tmp_path / FILE, NAMES)
    assert [each.name for each in tmp_path.iterdir()] == [FILE]


def test_a_folder_that_nobody_can_write_to_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_text("a file")
    assert self_signed_tls(settings_of(), data=str(tmp_path / "data"), names=NAMES) is None
    assert str(tmp_path / "data") in caplog.text
