"""A Celery application, as workers and `celery inspect` load it. Where the broker and Redis are is
in the environment."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery
from kombu import Exchange, Queue
from kombu.common import Broadcast

import escrowmq.integrations.kombu

__all__ = ["escrowmq"]

BACKEND = os.environ.get("SHOP_REDIS", "redis://127.0.0.1:1/0")

app = Celery(
    "shop", broker=f"escrowmq://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:1')}", backend=BACKEND
)
app.conf.update(
    task_routes={f"{__name__}.mail": "mails"},
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=1,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"consumer": {"rebalance_interval_ms": 1_000}},
)
if os.environ.get("SHOP_LISTENS"):
    app.conf.task_queues = [Queue("celery", Exchange("celery")), Broadcast("everyone")]


def count(name: str) -> int:
    """How often something has happened, over all processes."""
    with redis_client() as client:
        return int(client.incr(name))


def redis_client() -> redis.Redis:
    return redis.Redis.from_url(BACKEND)


@app.task  # type: ignore[untyped-decorator]
def add(a: int, b: int) -> int:
    return a + b


_here: list[str] = []


@app.task(bind=True)  # type: ignore[untyped-decorator]
def meets(self: Any, wanted: int) -> int:
    """Returns when so many of it run in this process."""
    _here.append(self.request.id)
    for _ in range(600):
        if len(_here) >= wanted:
            return len(_here)
        time.sleep(0.05)
    raise TimeoutError(f"{len(_here)} of {wanted}")


@app.task(bind=True)  # type: ignore[untyped-decorator]
def dies_first(self: Any) -> int:
    """Kills its process the first time, at once; and the worker's before, so that a result of this
    one cannot come first."""
    times = count(f"dies-{self.request.id}")
    if times == 1:
        if os.environ.get("SHOP_KILLS_PARENT"):
            os.kill(os.getppid(), 9)
        os.kill(os.getpid(), 9)
    return times


@app.task(bind=True, max_retries=2)  # type: ignore[untyped-decorator]
def fails_twice(self: Any) -> int:
    times = count(f"fails-{self.request.id}")
    if times < 3:
        raise self.retry(countdown=1)
    return times


@app.task(bind=True)  # type: ignore[untyped-decorator]
def mail(self: Any) -> str:
    """On a queue of its own."""
    return str(self.request.delivery_info["routing_key"])


@app.task(bind=True)  # type: ignore[untyped-decorator]
def heard(self: Any) -> None:
    """For each worker."""
    redis_client().sadd("heard", self.request.hostname)
