"""Checks are answered while the service is down."""

from __future__ import annotations

import datetime as dt
import functools
import logging
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import escrowmq
from escrowmq.cli import check_from_db
from escrowmq.integrations.dbapi import Outbox
from escrowmq.integrations.dbapi.addresses import make_connector
from tests.interop.process import Process, until
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place

DIES = """
import contextlib, os, signal, sys
import escrowmq
from escrowmq.integrations.dbapi import Outbox
from escrowmq.integrations.dbapi.addresses import make_connector
nameserver, group, topic, address, where = sys.argv[1:]
producer = escrowmq.Producer(nameserver, group=group)
connect = make_connector(address)
class Dies:
    def __init__(self, inner): self.inner = inner
    def __getattr__(self, name): return getattr(self.inner, name)
    def commit(self):
        if where == "before": os.kill(os.getpid(), signal.SIGKILL)
        self.inner.commit()
        os.kill(os.getpid(), signal.SIGKILL)
    @contextlib.contextmanager
    def transaction(self, *given):  # psycopg's, whose end commits
        with self.inner.transaction(*given) as inner:
            yield inner
            if where == "before": os.kill(os.getpid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
Dies.__module__ = type(connect()).__module__
with Outbox(producer, connect).transaction(Dies(connect())) as tx:
    tx.send(topic, where.encode())
"""


def address_of(place: Place) -> str:
    if place.kind == "mariadb":
        return f"mariadb://root@localhost/{place.name}?unix_socket={place.address}"
    return place.url


@pytest.fixture
def start(server: Server, group: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts the command."""
    started: list[Process] = []

    def make(*options: str) -> Process:
        command = [sys.executable, "-m", "escrowmq", "check-from-db", "--group", group]
        started.append(
            Process([*command, "-n", server.nameserver, *options], folder=tmp_path, name="check")
        )
        return started[-1]

    yield make
    for process in started:
        process.kill()


def test_what_a_dead_service_left_open_is_settled_from_its_database(
    server: Server, topic: str, group: str, place: Place, start: Callable[..., Process]
) -> None:
    address = address_of(place)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        Outbox(producer, make_connector(address)).create_tables()
    for where in ("after", "before"):
        command = [sys.executable, "-c", DIES, server.nameserver, group, topic, address, where]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == -9, done.stderr
    assert bodies(server, topic) == []
    process = start(address, "--forget-after", "7")
    process.wait_line("escrowmq ready group=", within_s=30)
    wait_bodies(server, topic, [b"after"])
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        until("the end of both", lambda: not producer.unsettled_keys())
    assert bodies(server, topic) == [b"after"]
    assert process.stop() == 0


def has_ended(process: Process) -> bool:
    return process.exit_code is not None


def test_what_is_missing_is_said_in_one_line(
    place: Place, start: Callable[..., Process], server: Server
) -> None:
    make_connector(address_of(place))().close()
    for options, text in (
        ([address_of(place)], "create_tables()"),
        (["sqlite:///no such.db"], "there is no file"),
        (["oracle://x/y"], "expected as postgresql://"),
    ):
        process = start(*options)
        until("its end", functools.partial(has_ended, process))
        assert process.exit_code == 2
        assert text in process.last_errors()
    command = [sys.executable, "-m", "escrowmq", "check-from-db", "--group", "g"]
    environment = {name: value for name, value in os.environ.items() if "ESCROWMQ" not in name}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=environment, timeout=60
    )
    assert done.returncode == 2
    assert "ESCROWMQ_DATABASE" in done.stderr


def test_a_clock_that_differs_keeps_markers_and_ends_nothing(
    server: Server, group: str, new_place: Callable[[str], Place], caplog: pytest.LogCaptureFixture
) -> None:
    """It ended the command, and with it the answers to checks."""
    place = new_place("sqlite")

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(place.address)
        connection.create_function("julianday", 1, lambda _: 2_440_587.5)  # 1970
        return connection

    with escrowmq.Producer(server.nameserver, group=group) as producer:
        outbox = Outbox(producer, connect)
        outbox.create_tables()
        gone = ["broker-z"]
        with caplog.at_level(logging.WARNING):
            check_from_db._forget_markers(outbox, dt.timedelta(days=7), gone=gone)
        assert "kept for another day: the database's clock" in caplog.text
        assert gone, "it is tried again"
        check_from_db._forget_markers(
            Outbox(producer, make_connector(place.url)), dt.timedelta(1), gone=gone
        )
        assert gone == [], "a broker that is back is not gone"


def test_options_that_cannot_be_are_refused_before_anything_is_answered(
    start: Callable[..., Process], place: Place
) -> None:
    for options, text in (
        (["--forget-after", "0.5"], "is required"),
        (["--gone", "broker-b"], "give both"),
    ):
        process = start(address_of(place), *options)
        until("its end", functools.partial(has_ended, process))
        assert process.exit_code == 2
        assert text in process.last_errors()
