"""Copies of a master's log, on the page of brokers and in the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq
from escrowmq.console.options import ConsoleOptions
from tests.harness.console import ADMIN, Browser, console, program, until
from tests.interop.servers import EscrowServer


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[dict[str, EscrowServer]]:
    """A name server, a master, and its slave, as processes."""
    names = EscrowServer(tmp_path / "names", verb="nameserver")

    def start(role: str, number: int) -> EscrowServer:
        return EscrowServer(
            tmp_path / role, verb="broker", nameserver=names.nameserver, brokerName="b",
            haListenPort=0, brokerRole=role, brokerId=number,
        )  # fmt: skip

    found = {"names": names, "master": start("ASYNC_MASTER", 0), "slave": start("SLAVE", 1)}
    yield found
    for each in found.values():
        each.process.kill()


def test_a_master_names_its_slaves_and_forgets_one_that_is_gone(
    pair: dict[str, EscrowServer],
) -> None:
    nameserver = pair["names"].nameserver
    options = ConsoleOptions(name_servers=nameserver, login="local", users=(ADMIN,))
    with console(options) as port:
        api = program(port)

        def replicas() -> object:
            return next(one for one in api.call("GET", "/brokers").json if one["id"] == 0)[
                "replicas"
            ]

        until(lambda: [one["isInSync"] for one in replicas() or ()] == [True])  # type: ignore[attr-defined]
        with escrowmq.Admin(nameserver) as admin:
            (known,) = admin.brokers.replicas("b")
        assert known.is_in_sync
        browser = Browser(port)
        browser.log_in()
        page = browser.get("/brokers")
        assert "in sync" in page.words()
        assert "b , slave 1" in page.words() or "b, slave 1" in page.words()
        pair["slave"].process.kill()
        until(lambda: replicas() == [])
        assert "no slave is connected" in browser.get("/brokers").words()
