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
