from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import escrowmq
from escrowmq.testing import Broker
from tests.browser.chromium import Chromium, program
from tests.harness.console import ADMIN, HOST, before


class Shop:
    """A broker with something to see, and its console."""

    def __init__(self, broker: Broker, port: int) -> None:
        self.broker = broker
        self.address = f"http://{HOST}:{port}"
        self.transaction = self._fill()

    def _fill(self) -> str:
        """Messages, a group that is behind, and pending transactions; the id of one."""
        broker = self.broker
        with escrowmq.Producer(broker.nameserver, group="orders-service") as producer:
            for nth in range(40):
                producer.send(
                    "orders-paid",
                    b'{"order": %d, "note": "<script>alert(1)</script>"}' % nth,
                    keys=[f"o-{nth}"],
                    tag="card",
                )
            producer.send("parcels", b"\x00\x01 binary \xff", keys=["p-1"])
            for nth in range(6):
                with producer.transaction("orders-paid", b"half", keys=[f"t-{nth}"]) as tx:
                    name = tx.detach()
        with escrowmq.Consumer(broker.nameserver, group="mailer", topic="orders-paid") as consumer:
            for nth, delivery in enumerate(consumer, 1):
                delivery.ack()
                if nth == 12:
                    break
        return name


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    with Broker(sockets=True) as broker, before(broker) as port:
        yield Shop(broker, port)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if program() is None:
        assert not os.environ.get("ESCROWMQ_NEEDS_CHROMIUM"), "CI installs it, see .ci/run"
        pytest.skip("there is no chromium on this machine (Debian: apt install chromium)")
    with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def inside(chromium: Chromium, shop: Shop) -> Chromium:
    """A browser that is logged in, by the keyboard."""
    chromium.look()
    chromium.open(f"{shop.address}/login")
    if chromium.run("document.querySelector('[name=password]') !== null"):
        chromium.type(ADMIN.password)  # the box has the focus
        chromium.press("Enter")
        chromium.until_loaded()
    chromium.errors.clear()
    return chromium


@pytest.fixture(scope="session")
def pictures() -> Path:
    """Where screenshots are kept, for people."""
    folder = Path(__file__).resolve().parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    return folder
