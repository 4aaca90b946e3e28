"""The examples of docs/frameworks.md run as they stand."""

from __future__ import annotations

import asyncio
import contextlib
import re
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from fastapi.testclient import TestClient

import escrowmq
import escrowmq.aio
from escrowmq.integrations.faststream import TestEscrowMQBroker
from escrowmq.testing import Broker

PAGE = Path(__file__).resolve().parents[2] / "docs" / "frameworks.md"


def _blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example_with_faststream_runs() -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(_blocks()[1], str(PAGE), "exec", dont_inherit=True), names)
    broker, mail = names["broker"], names["mail"]

    async def go() -> None:
        async with TestEscrowMQBroker(broker):
            await broker.publish({"id": "o-1"}, "paid", tag="card")
            mail.mock.assert_called_once_with({"id": "o-1"})

    asyncio.run(go())


def test_the_example_with_celery_is_one_of_our_transport() -> None:
    names: dict[str, Any] = {}
    exec(compile(_blocks()[2], str(PAGE), "exec", dont_inherit=True), names)
    with names["app"].connection_for_write() as connection:
        assert connection.transport.driver_type == "escrowmq"


def test_the_example_with_fastapi_runs(escrowmq_broker: Broker) -> None:
    block = _blocks()[0]
    names: dict[str, Any] = {
        "contextlib": contextlib, "FastAPI": FastAPI, "Request": Request, "Depends": Depends,
        "Annotated": Annotated, "escrowmq": escrowmq,
    }  # fmt: skip
    exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)
    with TestClient(names["app"]) as client:
        answer = client.post("/hellos", params={"name": "you"})
    assert answer.status_code == 202
    assert [m.message_id for m in escrowmq_broker.messages("hellos")] == [answer.json()]


def test_a_service_starts_while_its_broker_is_away(escrowmq_broker: Broker) -> None:
    escrowmq_broker.stop()

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> Any:
        async with escrowmq.aio.Producer(group="shop") as producer:
            app.state.producer = producer
            yield

    app = FastAPI(lifespan=lifespan)

    @app.get("/send")
    async def send() -> str:
        sent: escrowmq.SendResult = await app.state.producer.send("paid", b"x")
        return sent.status.name

    with TestClient(app) as client:
        escrowmq_broker.start()
        assert client.get("/send").json() == "OK"
