"""Whichever process of the shop dies behind whichever step: orders, events, mails and parcels are
equal."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import psycopg
import pytest
from examples.shop import packing
from examples.shop.__main__ import prepare

from escrowmq.testing import Broker
from tests.compensation.services import PostgresServer, missing_postgres
from tests.interop.process import Process, until

from .dying import MAIL_STEPS, ORDER_STEPS, PACK_STEPS

pytestmark = pytest.mark.crash
ROOT = Path(__file__).resolve().parents[2]
DYING = Path(__file__).parent / "DyingPacker.java"
PATH = {"PYTHONPATH": str(ROOT)}


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if missing := missing_postgres():
        pytest.skip(f"not on this machine: {missing}")
    server = PostgresServer(tmp_path_factory.mktemp("postgres"))
    yield server.new_database()
    server.stop()


class Shop:
    """Its processes, one of each at a time."""

    def __init__(self, address: str, nameserver: str, folder: Path) -> None:
        self.address = address
        self._folder = folder
        self._more = ["--nameserver", nameserver, "--port", "0", "--folder", str(folder)]
        self._database = address.replace("postgresql", "postgresql+psycopg", 1)
        asyncio.run(prepare(self._database))
        self._number = 0

    def start(self, service: str, step: str = "none") -> tuple[Process, str]:
        """A service that dies behind a step; where it listens."""
        self._number += 1
        process = Process(
            [sys.executable, "-m", "tests.shop.dying", step, service, "--database",
             self._database, *self._more],
            folder=self._folder,
            name=f"{service}-{self._number}-{step}",
            environment=PATH,
        )  # fmt: skip
        ready = process.wait_line(f"{service} ready", within_s=60)
        return process, ready.split()[-1]

    def order(self, key: str, step: str) -> None:
        """Order until the shop says that it is there, as customers do."""
        process, url = self.start("orders", step)
        # Brokers are told of the end while the customer is answered: either may come first.
        broken = contextlib.suppress if step == "end" else pytest.raises
        with broken(httpx.TransportError):
            httpx.post(f"{url}/orders", json={"id": key, "amount": 1}, timeout=30)
        assert process.wait_end() == -signal.SIGKILL
        process, url = self.start("orders")
        answer = httpx.post(f"{url}/orders", json={"id": key, "amount": 1}, timeout=30)
        assert answer.status_code in (201, 409)
        process.stop()

    def column(self, question: str) -> list[str]:
        """What stands in the database."""
        with psycopg.connect(self.address) as connection:
            return [str(row[0]) for row in connection.execute(question.encode()).fetchall()]


def test_no_step_parts_orders_events_and_mails(
    address: str, escrowmq_server: Broker, tmp_path: Path
) -> None:
    shop = Shop(address, escrowmq_server.nameserver, tmp_path)
    keys = [f"o-{nth}" for nth in range(len(ORDER_STEPS))]
    for key, step in zip(keys, ORDER_STEPS, strict=True):
        shop.order(key, step)
    process, _ = shop.start("orders")  # answers for those that died
    escrowmq_server.crash()
    escrowmq_server.check_now()
    assert escrowmq_server.pending() == []
    assert shop.column("select id from orders order by id") == keys
    events = [message.keys for message in escrowmq_server.messages("paid")]
    assert sorted(events) == [[key] for key in keys]
    process.stop()
    for step in MAIL_STEPS:
        dying, _ = shop.start("mailer", step)
        assert dying.wait_end() == -signal.SIGKILL
    mailer, _ = shop.start("mailer")
    escrowmq_server.wait_consumed("shop-mailer")
    mailer.stop()
    assert shop.column("select order_id from mails order by order_id") == keys


@pytest.fixture
def made() -> Path:
    if missing := packing.missing():
        pytest.skip(f"not on this machine: {missing}")
    return packing.make()


def test_no_step_of_the_java_service_loses_an_order_or_packs_it_twice(
    made: Path, escrowmq_server: Broker, tmp_path: Path
) -> None:
    keys = [f"o-{nth}" for nth in range(5)]
    for key in [*keys, "o-0"]:  # a customer's second try is a message of its own
        escrowmq_server.send("paid", b"{}", keys=[key])
    parcels = tmp_path / "parcels"

    def start(*words: str) -> Process:
        command = packing.command(made, tmp_path, words[0])
        command += [*words[1:], escrowmq_server.nameserver, str(parcels)]
        return Process(command, folder=tmp_path, name="-".join(("packer", *words[1:])))

    for step in PACK_STEPS:
        dying = start(str(DYING), step)
        assert dying.wait_end(within_s=60) == -signal.SIGKILL
    with parcels.open("ab") as file:
        file.write(b"o-")  # as a process leaves it that dies in the middle of a line
    packer = start("Packer")
    packer.wait_line("packer ready", within_s=60)
    escrowmq_server.wait_consumed("shop-packer")
    packer.stop()
    assert sorted(parcels.read_text().splitlines()) == keys


def test_one_command_runs_the_shop_and_ends_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.shop", "--port", "0", "--folder", str(tmp_path)]
    shop = Process(command, folder=tmp_path, name="shop", environment=PATH)
    missing = packing.missing()
    if missing:
        shop.wait_line(f"no packer, which is in Java; not on this machine: {missing}", within_s=60)
    url = shop.wait_line("orders ready", within_s=60).split()[-1]
    assert httpx.post(f"{url}/orders", json={"id": "o-1", "amount": 1}).status_code == 201

    def mails() -> list[tuple[str]]:
        with contextlib.closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
            return connection.execute("select order_id from mails").fetchall()

    until("the mail", lambda: mails() == [("o-1",)])
    if not missing:
        parcels = tmp_path / "parcels"
        until("the parcel", lambda: parcels.exists() and parcels.read_text() == "o-1\n")
    assert shop.stop() == 0
