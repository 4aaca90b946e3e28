from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.addresses import connector


def test_a_file_is_opened(tmp_path: Path) -> None:
    connection = connector(f"sqlite:///{tmp_path / 'a shop.db'}".replace(" ", "%20"))()
    assert isinstance(connection, sqlite3.Connection)
    connection.execute("create table t (n)")
    connection.close()
    assert (tmp_path / "a shop.db").exists()


@pytest.mark.parametrize("address", ["", "shop", "oracle://secret@h/x", "sqlite://", "sqlite:///",
                                     "sqlite://secret/x", "postgresql://u:secret@h:99999999/x",
                                     "mysql://[secret"])  # fmt: skip
def test_what_is_no_address_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(UsageError, match="expected as postgresql://") as raised:
        connector(address)
    assert "secret" not in str(raised.value)


def test_servers_are_not_asked_before_a_connection_is_wanted() -> None:
    for address in ("postgresql://u@h/x", "postgresql+psycopg://u@h/x", "mariadb://u:p%40@h:1/x"):
        assert callable(connector(address))


def test_options_that_would_be_left_out_are_refused() -> None:
    """An address asked for a certificate, and the connection did without, unsaid."""
    safe = "mysql://u@h/x?ssl_ca=/ca.pem&ssl_verify_cert=true&ssl_disabled=0&unix_socket=/m.sock"
    assert callable(connector(safe))
    for address, told in (
        ("mysql://u@h/x?ssl_mode=REQUIRED", "unix_socket, ssl_ca, .* are known"),
        ("mariadb://u@h/x?ssl_verify_cert=please", "true or false"),
        ("sqlite:///x.db?mode=ro", "none is known"),
    ):
        with pytest.raises(UsageError, match=told):
            connector(address)


def test_options_reach_the_driver() -> None:
    pytest.importorskip("pymysql")
    with pytest.raises(FileNotFoundError):
        connector("mariadb://u@127.0.0.1:1/x?ssl_ca=/nowhere/ca.pem&ssl_verify_cert=true")()
