"""Celery on our transport: real workers, as processes, and results in Redis."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kombu import pools

import escrowmq
from escrowmq.integrations.kombu import names
from escrowmq.integrations.kombu.transport import DELAY_MAX, _visible_at
from tests.compensation.services import RedisServer
from tests.interop.process import Process, until
from tests.interop.servers import Server

ROOT = Path(__file__).resolve().parents[2]
PATHS = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
MODULE = "tests.frameworks.shop_tasks"
ANSWER_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server("escrow", tmp_path_factory.mktemp("server"), {}).start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def environment(
    server: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    if shutil.which("redis-server") is None:
        pytest.skip("not on this machine: redis-server")
    redis = RedisServer(tmp_path_factory.mktemp("redis"))
    yield {"NAMESRV_ADDR": server.nameserver, "SHOP_REDIS": redis.url, "PYTHONPATH": PATHS}
    redis.kill()


@pytest.fixture(scope="module")
def app(environment: dict[str, str]) -> Iterator[Any]:
    """The application, in this process."""
    os.environ.update(environment)
    sys.modules.pop(MODULE, None)
    import tests.frameworks.shop_tasks as shop

    yield shop
    shop.app.pool.force_close_all()
    pools.reset()
    shop.app.close()
    for name in ("NAMESRV_ADDR", "SHOP_REDIS"):
        del os.environ[name]


Start = Callable[..., Process]


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Starts workers."""
    started: list[Process] = []

    def one(name: str = "one", *words: str, **more: str) -> Process:
        process = Process(
            [sys.executable, "-m", "celery", "-A", MODULE, "worker", "-n", f"{name}@shop",
             "--concurrency", "1", "--loglevel", "info", *words],
            folder=tmp_path,
            name=name,
            environment=environment | more,
        )  # fmt: skip
        started.append(process)
        until("the worker", lambda: _is_ready(process), within_s=60)
        return process

    yield one
    for process in started:
        process.stop(within_s=20)


def _is_ready(process: Process) -> bool:
    assert process.exit_code is None, process.last_errors()
    return "ready." in process.last_errors()


def inspect(environment: dict[str, str], *words: str) -> Any:
    """What `celery inspect` says, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "celery", "-A", MODULE, "inspect", "--json", "--timeout", "20",
         *words],
        env={**os.environ, **environment}, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def test_tasks_run_and_their_results_come_back(app: Any, start: Start) -> None:
    start("one", "-Q", "celery,mails")
    assert app.add.delay(1, 2).get(timeout=ANSWER_S) == 3
    assert app.mail.delay().get(timeout=ANSWER_S) == "mails"
    results = [app.add.delay(n, n) for n in range(20)]
    assert [result.get(timeout=ANSWER_S) for result in results] == [2 * n for n in range(20)]


def test_tasks_run_as_greenlets(app: Any, environment: dict[str, str], start: Start) -> None:
    """More at a time than the worker has threads; it can be inspected meanwhile."""
    start("green", "--pool", "gevent", "--concurrency", "10", "--prefetch-multiplier", "1")
    results = [app.meets.delay(8) for _ in range(8)]
    assert [result.get(timeout=ANSWER_S) for result in results] == [8] * 8
    assert inspect(environment, "ping", "-d", "green@shop") == {"green@shop": {"ok": "pong"}}


def test_a_task_that_is_to_run_later_waits_at_the_broker(
    app: Any, environment: dict[str, str], start: Start
) -> None:
    start()
    later = app.add.apply_async((1, 2), countdown=3_600)
    began = time.monotonic()
    result = app.add.apply_async((3, 4), countdown=3)
    assert result.get(timeout=ANSWER_S) == 7
    assert time.monotonic() - began >= 3
    assert inspect(environment, "scheduled", "-d", "one@shop") == {"one@shop": []}
    assert later.state == "PENDING"


def test_a_task_that_asks_to_be_tried_again_is(app: Any, start: Start) -> None:
    start()
    assert app.fails_twice.delay().get(timeout=ANSWER_S) == 3


def test_a_task_whose_process_dies_runs_again(app: Any, start: Start) -> None:
    start()
    assert app.dies_first.delay().get(timeout=ANSWER_S) == 2


def test_a_task_whose_worker_is_killed_runs_at_another(app: Any, start: Start) -> None:
    dying = start("dying", SHOP_KILLS_PARENT="yes")
    result = app.dies_first.delay()
    assert dying.wait_end(within_s=60) == -9
    start("other")
    assert result.get(timeout=ANSWER_S) == 2


def test_inspect_reaches_all_workers_from_another_process(
    app: Any, environment: dict[str, str], start: Start
) -> None:
    start("one")
    start("two")
    answers = inspect(environment, "ping", "-d", "one@shop,two@shop")
    assert answers == {"one@shop": {"ok": "pong"}, "two@shop": {"ok": "pong"}}
    (stats,) = inspect(environment, "stats", "-d", "two@shop").values()
    assert stats["broker"]["transport"] == "escrowmq"


def test_a_broadcast_runs_at_each_worker(app: Any, start: Start) -> None:
    start("one", SHOP_LISTENS="yes")
    start("two", SHOP_LISTENS="yes")

    def is_heard_by_both() -> bool:
        app.heard.apply_async(exchange="everyone", routing_key="everyone")
        return bool(app.redis_client().smembers("heard") == {b"one@shop", b"two@shop"})

    until("both workers", is_heard_by_both, within_s=60)


def test_events_of_workers_reach_another_process(app: Any, start: Start) -> None:
    seen: list[dict[str, Any]] = []
    with app.app.connection_for_read() as connection:
        receiver = app.app.events.Receiver(connection, handlers={"task-succeeded": seen.append})
        with receiver.consumer_context(wakeup=False) as (receiving, _, _):
            start("one", "--task-events")
            result = app.add.delay(1, 2)
            assert result.get(timeout=ANSWER_S) == 3
            while not seen:
                receiving.drain_events(timeout=ANSWER_S)
    assert seen[0]["uuid"] == result.id


def test_a_revoked_task_does_not_run(app: Any, start: Start) -> None:
    worker = start()
    result = app.add.apply_async((1, 1), countdown=4)
    app.app.control.revoke(result.id)
    until("the revocation", lambda: "flagged as revoked" in worker.last_errors(), within_s=60)
    until("the task's end", lambda: result.state == "REVOKED", within_s=60)


def test_a_worker_that_ends_leaves_its_tasks_to_others(app: Any, start: Start) -> None:
    first = start("first")
    results = [app.add.delay(n, 1) for n in range(10)]
    first.stop(within_s=30)
    start("second")
    assert [result.get(timeout=ANSWER_S) for result in results] == list(range(1, 11))


def test_a_worker_that_is_told_to_consume_a_queue_no_more_leaves_it_to_others(
    app: Any, start: Start
) -> None:
    start("first")
    assert app.add.delay(1, 1).get(timeout=ANSWER_S) == 2
    (answer,) = app.app.control.cancel_consumer(
        "celery", destination=["first@shop"], reply=True, timeout=ANSWER_S
    )
    assert answer == {"first@shop": {"ok": "no longer consuming from celery"}}
    start("second")
    results = [app.add.delay(n, 1) for n in range(10)]
    assert [result.get(timeout=ANSWER_S) for result in results] == list(range(1, 11))


def test_what_is_purged_does_not_run(app: Any, start: Start) -> None:
    app.app.control.purge()
    never = [app.add.delay(n, 1) for n in range(5)]
    assert app.app.control.purge() == 5
    assert app.app.control.purge() == 0
    start()
    assert app.add.delay(1, 1).get(timeout=ANSWER_S) == 2
    assert {result.state for result in never} == {"PENDING"}


# -- what needs no worker --------------------------------------------------------------------


FORKS = """
import os, sys
import escrowmq.integrations.kombu
from celery import Celery
app = Celery("shop", broker=f"escrowmq://{sys.argv[1]}")
app.send_task("of.parent", queue="forks")
child = os.fork()
if not child:
    app.send_task("of.child", queue="forks")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
app.send_task("of.parent", queue="forks")
"""


def test_a_server_that_forks_behind_its_first_task_sends_tasks_from_its_children(
    server: Server,
) -> None:
    """The first task of each child raised ClientForked, as its connection was its parent's."""
    command = [sys.executable, "-W", "ignore", "-c", FORKS, server.nameserver]
    environment = {**os.environ, "PYTHONPATH": PATHS}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    with escrowmq.Admin(server.nameserver) as admin:
        assert admin.topics.describe("celery-forks").count == 3


def test_names_of_queues_become_names_that_topics_can_have() -> None:
    assert names.queue_topic("celery", "mails") == "celery-mails"
    found = {names.clean_name(name) for name in ("a@b.c", "a_b_c", "a.b@c", "a" * 200, "a" * 201)}
    assert len(found) == 5
    assert all(len(name) <= 70 for name in found)


def test_what_is_due_further_off_than_brokers_keep_it_comes_as_late_as_they_do() -> None:
    now = dt.datetime.now(dt.UTC)
    soon, late = now + dt.timedelta(hours=1), now + dt.timedelta(days=30)
    assert _visible_at(soon.isoformat()) == soon
    assert _visible_at(soon.replace(tzinfo=None).isoformat()) == soon
    found = _visible_at(late.isoformat())
    assert found is not None
    assert abs(found - now - DELAY_MAX) < dt.timedelta(minutes=1)
    assert _visible_at((now - dt.timedelta(hours=1)).isoformat()) is None
    assert _visible_at(None) is None
