from __future__ import annotations

import sqlite3
import traceback
from pathlib import Path

import pytest

from escrowmq.errors import UsageError
from escrowmq.integrations.dbapi.addresses import make_connector


def test_a_file_is_opened(tmp_path: Path) -> None:
    connection = make_connector(f"sqlite:///{tmp_path / 'a shop.db'}".replace(" ", "%20"))()
    assert isinstance(connection, sqlite3.Connection)
    connection.execute("create table t (n)")
    connection.close()
    assert (tmp_path / "a shop.db").exists()


def test_a_file_that_is_not_there_is_not_made_by_a_command_that_only_looks(tmp_path: Path) -> None:
    """`outbox status` and `check-from-db` left an empty database at every path with a typo."""
    address = f"sqlite:///{tmp_path / 'shpo.db'}"
    with pytest.raises(UsageError, match=r"there is no file '.*shpo\.db'"):
        make_connector(address, must_exist=True)
    assert not (tmp_path / "shpo.db").exists()
    make_connector(address)().close()
    make_connector(address, must_exist=True)().close()


@pytest.mark.parametrize("address", ["", "shop", "oracle://secret@h/x", "sqlite://", "sqlite:///",
                                     "sqlite://secret/x", "postgresql://u:secret@h:99999999/x",
                                     "mysql://[secret"])  # fmt: skip
def test_what_is_no_address_is_refused_without_being_shown(address: str) -> None:
    with pytest.raises(UsageError, match="expected as postgresql://") as raised:
        make_connector(address)
    assert "secret" not in str(raised.value)


def test_servers_are_not_asked_before_a_connection_is_wanted() -> None:
    for address in ("postgresql://u@h/x", "postgresql+psycopg://u@h/x", "mariadb://u:p%40@h:1/x"):
        assert callable(make_connector(address))


def test_options_that_would_be_left_out_are_refused() -> None:
    """An address asked for a certificate, and the connection did without, unsaid."""
    safe = "mysql://u@h/x?ssl_ca=/ca.pem&ssl_verify_cert=true&ssl_disabled=0&unix_socket=/m.sock"
    assert callable(make_connector(safe))
    for address, told in (
        ("mysql://u@h/x?ssl_mode=REQUIRED", "unix_socket, ssl_ca, .* are known"),
        ("mariadb://u@h/x?ssl_verify_cert=please", "true or false"),
        ("sqlite:///x.db?mode=ro", "none is known"),
    ):
        with pytest.raises(UsageError, match=told):
            make_connector(address)


def test_options_reach_the_driver() -> None:
    pytest.importorskip("pymysql")
    with pytest.raises(FileNotFoundError):
        make_connector("mariadb://u@127.0.0.1:1/x?ssl_ca=/nowhere/ca.pem&ssl_verify_cert=true")()


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://u:s3cret%K@h/x",
        "postgresql://u:s3cret%",
        "postgresql://u:s3cret%FF@h/x",
        "postgresql://u:s3cret%00@h/x",
        "postgresql://u:1/s3cret@h/x",
        "postgresql://u:1?s3cret@h/x",
        "postgresql://u@h/x#s3cret",
        "postgresql://u@h/x?pasword=s3cret",
        "postgresql://u@h/x?s3cret",
    ],
)
def test_a_wrong_address_of_postgresql_is_refused_before_it_is_used_and_not_shown(
    address: str,
) -> None:
    """PostgreSQL's library puts the whole address into its error."""
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError) as raised:
        make_connector(address)
    assert "s3cret" not in "".join(traceback.format_exception(raised.value))


def test_each_part_of_an_address_reaches_postgresqls_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    psycopg = pytest.importorskip("psycopg")
    made: list[str] = []
    monkeypatch.setattr(psycopg, "connect", made.append)
    for address, expected in (
        ("postgresql://", {}),
        ("postgres://shop@h/x", {"user": "shop", "host": "h", "dbname": "x"}),
        (
            "postgresql+psycopg://u%40v:s3@cr%25et@[::1]:5433/a%20b?sslmode=require",
            {"user": "u@v", "password": "s3@cr%et", "host": "::1", "port": "5433",
             "dbname": "a b", "sslmode": "require"},
        ),
        (
            "postgresql://%2FTmp%2Fpg/x?options=-c%20a%3Db+c&ssl=true",
            {"host": "/Tmp/pg", "dbname": "x", "options": "-c a=b+c", "sslmode": "require"},
        ),
        ("postgresql:///x?host=/tmp&port=1", {"dbname": "x", "host": "/tmp", "port": "1"}),
        ("postgresql://h1,h2/x", {"host": "h1,h2", "dbname": "x"}),
    ):  # fmt: skip
        make_connector(address)()
        found = psycopg.conninfo.conninfo_to_dict(made.pop())
        assert found == {**expected, "connect_timeout": "10"}, address
