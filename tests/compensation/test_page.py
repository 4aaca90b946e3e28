"""The examples of docs/compensation.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from examples.compensating_shop import Shop

import escrowmq
from escrowmq import compensation
from escrowmq.testing import Broker
from tests.interop.process import until

from .services import RedisServer

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compensation.md"
REDIS = "redis://127.0.0.1:6379/0"


def test_the_examples_run(database: str, redis_server: RedisServer) -> None:
    announcing, consuming, repairing = re.findall(
        r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    with Broker(sockets=True) as broker:
        broker.create_topic("paid", 1)
        with (
            escrowmq.Admin(broker.nameserver) as admin,
            escrowmq.Producer(
                broker.nameserver, group="orders", check=lambda _: escrowmq.Outcome.UNKNOWN
            ) as producer,
        ):
            names: dict[str, Any] = {
                "escrowmq": escrowmq, "nameserver": broker.nameserver, "database": database,
                "Shop": Shop, "admin": admin, "producer": producer,
                **{name: getattr(compensation, name) for name in compensation.__all__},
            }  # fmt: skip
            for text in (consuming, announcing):
                exec(compile(text.replace(REDIS, redis_server.url), "page", "exec"), names)
            try:
                until("it is booked", lambda: names["shop"].booked() == ["o-1"])
                until("both sets have it", lambda: names["sets"].counts() == (1, 1))
                exec(compile(repairing.replace(REDIS, redis_server.url), "page", "exec"), names)
                assert names["report"].counts is not None
            finally:
                names["consumer"].close()
                names["reader"].close()
