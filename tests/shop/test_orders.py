"""The example shop, tested as a user would: in this process, with the testing kit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from examples.shop.__main__ import prepare
from examples.shop.mailer import mailing
from examples.shop.orders import create_app
from fastapi.testclient import TestClient

from escrowmq.testing import Broker

FIRST = {"id": "o-1", "amount": 7}
EVENT = b'{"id":"o-1","amount":7}'


@pytest.fixture
def database(tmp_path: Path) -> str:
    url = f"sqlite+aiosqlite:///{tmp_path / 'shop.db'}"
    asyncio.run(prepare(url))
    return url


@pytest.fixture
def shop(database: str, escrowmq_broker: Broker) -> Iterator[TestClient]:
    with TestClient(create_app(database)) as client:
        yield client


def mails(database: str) -> list[str]:
    engine = sa.create_engine(database.replace("+aiosqlite", ""))
    try:
        with engine.connect() as connection:
            found = connection.execute(sa.text("select order_id from mails order by order_id"))
            return [row[0] for row in found]
    finally:
        engine.dispose()


def test_an_order_is_announced(shop: TestClient, escrowmq_broker: Broker) -> None:
    assert shop.post("/orders", json=FIRST).status_code == 201
    assert shop.get("/orders").json() == ["o-1"]
    assert escrowmq_broker.delivered("paid") == [EVENT]
    assert escrowmq_broker.messages("paid")[0].keys == ["o-1"]


def test_an_order_that_is_there_already_is_announced_once(
    shop: TestClient, escrowmq_broker: Broker
) -> None:
    answers = [shop.post("/orders", json=FIRST).status_code for _ in range(2)]
    assert answers == [201, 409]
    escrowmq_broker.check_now()
    assert escrowmq_broker.delivered("paid") == [EVENT]
    assert escrowmq_broker.pending() == []


def test_an_order_whose_broker_has_no_room_is_refused_and_not_kept(
    shop: TestClient, escrowmq_broker: Broker
) -> None:
    with escrowmq_broker.full_disk(), pytest.raises(Exception, match="disk is full"):
        shop.post("/orders", json=FIRST)
    assert shop.get("/orders").json() == []
    assert escrowmq_broker.delivered("paid") == []


def test_an_order_whose_end_is_lost_is_announced_by_the_check(
    shop: TestClient, escrowmq_broker: Broker
) -> None:
    escrowmq_broker.lose_next_end()
    assert shop.post("/orders", json=FIRST).status_code == 201
    assert escrowmq_broker.pending("paid") == [EVENT]
    escrowmq_broker.check_now()
    assert escrowmq_broker.delivered("paid") == [EVENT]


def test_an_event_that_comes_twice_is_mailed_once(
    shop: TestClient, database: str, escrowmq_broker: Broker
) -> None:
    async def mail() -> None:
        async with mailing(database):
            await escrowmq_broker.aio.wait_consumed("shop-mailer")

    shop.post("/orders", json=FIRST)
    asyncio.run(mail())
    escrowmq_broker.send("paid", EVENT, keys=["o-1"])
    asyncio.run(mail())
    assert mails(database) == ["o-1"]
