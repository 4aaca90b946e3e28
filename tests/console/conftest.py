from __future__ import annotations

from collections.abc import Iterator

import pytest

from escrowmq.testing import Broker
from tests.harness.console import Browser, before, program


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def port(broker: Broker) -> Iterator[int]:
    with before(broker) as port:
        yield port


@pytest.fixture
def browser(port: int) -> Browser:
    """Somebody who may change things."""
    browser = Browser(port)
    assert browser.log_in().status == 303
    browser.get("/")
    return browser


@pytest.fixture
def api(port: int) -> Browser:
    """A program of somebody who may change things."""
    return program(port)
