"""Django's tasks over EscrowMQ, on real databases: run as often as their transaction commits."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import modify_settings

import escrowmq
from escrowmq.errors import UsageError
from escrowmq.testing import Broker
from tests.interop.process import Process

from .test_django import add, orders, using

BACKEND = "escrowmq.integrations.django.tasks.EscrowMQBackend"
settings.TASKS = {
    "default": {
        "BACKEND": BACKEND,
        "QUEUES": ["default", "mails"],
        "OPTIONS": {"using": "shop", "attempts_max": 1},
    },
    "once": {
        "BACKEND": BACKEND,
        "OPTIONS": {"using": "shop", "group": "once", "once": True},
    },
    "elsewhere": {"BACKEND": "django_tasks.backends.dummy.DummyBackend"},
    "wrong": {"BACKEND": BACKEND, "OPTIONS": {"topic": "x"}},
}

import django_tasks  # noqa: E402 - the settings stand above
from django_tasks.signals import task_finished  # noqa: E402

from escrowmq.integrations.django.tasks import close_clients, working  # noqa: E402

__all__ = ["using"]

RAN: list[tuple[Any, ...]] = []
FINISHED: list[tuple[str, int]] = []


@django_tasks.task
def greet(name: str, *, times: int = 1) -> str:
    RAN.append((name, times))
    return name


@django_tasks.task(queue_name="mails", takes_context=True)
def mail(context: Any, name: str) -> None:
    RAN.append((name, context.attempt))


@django_tasks.task
async def awaited(name: str) -> None:
    RAN.append((name,))


@django_tasks.task
def fail() -> None:
    raise ValueError("no")


@django_tasks.task
def leave() -> None:
    raise SystemExit(3)


@django_tasks.task(backend="once")
def book(number: str) -> None:
    add(number)


def no_task() -> None:
    RAN.append(("never",))


def note(sender: Any, task_result: Any, **more: Any) -> None:
    FINISHED.append((str(task_result.status), task_result.attempts))


@pytest.fixture(autouse=True)
def _clean(escrowmq_broker: Broker, using: str) -> Iterator[None]:
    task_finished.connect(note)
    yield
    task_finished.disconnect(note)
    close_clients()
    RAN.clear()
    FINISHED.clear()


def test_a_task_runs_with_what_it_was_given(escrowmq_broker: Broker) -> None:
    result = greet.enqueue("you", times=2)
    mail.enqueue("me")
    awaited.enqueue("them")
    assert escrowmq_broker.messages("django-tasks-default")[0].keys == [result.id]
    with working():
        for queue in ("default", "mails"):
            escrowmq_broker.wait_consumed(f"django-tasks-{queue}-workers")
    assert sorted(RAN) == [("me", 1), ("them",), ("you", 2)]
    assert FINISHED == [("SUCCESSFUL", 1)] * 3


def test_a_task_of_a_transaction_runs_when_that_commits_and_only_then(
    escrowmq_broker: Broker,
) -> None:
    with transaction.atomic(using="shop"):
        add("o-1")
        greet.enqueue("committed")
        assert escrowmq_broker.delivered("django-tasks-default") == []
    with pytest.raises(ValueError, match="no"), transaction.atomic(using="shop"):
        greet.enqueue("rolled back")
        raise ValueError("no")
    with working(queues=["default"]):
        escrowmq_broker.wait_consumed("django-tasks-default-workers")
    assert RAN == [("committed", 1)]
    assert orders() == ["o-1"]


def test_a_task_waits_for_its_time(escrowmq_broker: Broker) -> None:
    greet.using(run_after=escrowmq_broker.now + dt.timedelta(hours=1)).enqueue("later")
    assert escrowmq_broker.delivered("django-tasks-default") == []
    escrowmq_broker.advance(hours=1)
    assert len(escrowmq_broker.delivered("django-tasks-default")) == 1


@pytest.mark.parametrize("task", [fail, leave])
def test_a_task_that_fails_comes_again_and_is_a_dead_letter_in_the_end(
    escrowmq_broker: Broker, task: Any
) -> None:
    task.enqueue()
    workers = "django-tasks-default-workers"
    with working(queues=["default"]):
        escrowmq_broker.wait_consumed(workers)
        escrowmq_broker.advance(minutes=1)
        escrowmq_broker.wait_consumed(workers)
    assert FINISHED == [("FAILED", 1), ("FAILED", 2)]
    assert len(escrowmq_broker.dead(workers)) == 1


def test_a_task_that_is_delivered_twice_changes_nothing_twice(escrowmq_broker: Broker) -> None:
    book.enqueue("o-1")
    with working("once"):
        escrowmq_broker.wait_consumed("once-default-workers")
    with escrowmq.Admin() as admin:
        admin.offsets.reset("once-default-workers", "once-default", to="first")
    with working("once"):
        escrowmq_broker.wait_consumed("once-default-workers")
    assert orders() == ["o-1"]
    assert FINISHED == [("SUCCESSFUL", 1)]


def test_what_is_no_task_is_not_run(escrowmq_broker: Broker) -> None:
    body = (
        b'{"task":"%b.no_task","args":[],"kwargs":{},"id":"x","enqueuedAt":""}' % __name__.encode()
    )
    escrowmq_broker.send("django-tasks-mails", body)
    workers = "django-tasks-mails-workers"
    with working(queues=["mails"]):
        escrowmq_broker.wait_consumed(workers)
        escrowmq_broker.advance(minutes=1)
        escrowmq_broker.wait_consumed(workers)
    assert RAN == []
    assert escrowmq_broker.dead(workers) == [body]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which Python imports."""
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def test_a_message_makes_the_worker_import_nothing(escrowmq_broker: Broker, modules: Path) -> None:
    """The code of any module that Python could find ran."""
    (modules / "wipe_everything.py").write_text("")
    (modules / "lazy.py").write_text("def __getattr__(name): import wipe_everything")
    importlib.import_module("lazy")
    body = b'{"task":"%b.now","args":[],"kwargs":{},"id":"x","enqueuedAt":""}'
    tasks = [body % name for name in (b"wipe_everything", b"lazy")]
    for task in tasks:
        escrowmq_broker.send("django-tasks-mails", task)
    workers = "django-tasks-mails-workers"
    with working(queues=["mails"]):
        escrowmq_broker.wait_consumed(workers)
        escrowmq_broker.advance(minutes=1)
        escrowmq_broker.wait_consumed(workers)
    assert "wipe_everything" not in sys.modules
    assert sorted(escrowmq_broker.dead(workers)) == sorted(tasks)


TASKS_MODULE = """
import django_tasks

@django_tasks.task
def run(name):
    from tests.outbox.test_django_tasks import RAN
    RAN.append((name,))
"""


def test_a_worker_imports_the_tasks_of_applications_and_what_is_named(
    escrowmq_broker: Broker,
    modules: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name in ("shop_app", "broken_app"):
        (modules / name).mkdir()
        (modules / name / "__init__.py").write_text("")
    (modules / "shop_app" / "tasks.py").write_text(TASKS_MODULE)
    (modules / "shop_jobs.py").write_text(TASKS_MODULE)
    (modules / "broken_app" / "tasks.py").write_text("import no_such_module")
    body = '{"task":"%s.run","args":["%s"],"kwargs":{},"id":"x","enqueuedAt":""}'
    for name in ("shop_app.tasks", "shop_jobs"):
        escrowmq_broker.send("django-tasks-mails", (body % (name, name)).encode())
    backend = django_tasks.task_backends["default"]
    monkeypatch.setattr(backend.settings, "imports", ["shop_jobs"])
    with modify_settings(INSTALLED_APPS={"append": ["shop_app", "broken_app"]}):
        with working(queues=["mails"]):
            escrowmq_broker.wait_consumed("django-tasks-mails-workers")
    assert sorted(RAN) == [("shop_app.tasks",), ("shop_jobs",)]
    assert "broken_app.tasks cannot be imported" in caplog.text
    monkeypatch.setattr(backend.settings, "imports", ["no_such_module"])
    with pytest.raises(ModuleNotFoundError), working(queues=["mails"]):
        pass


def test_mistakes_are_named() -> None:
    with (
        pytest.raises(UsageError, match="has no queue films; it has default, mails"),
        working(queues=["films"]),
    ):
        pass
    with pytest.raises(UsageError, match="is DummyBackend"), working("elsewhere"):
        pass
    with pytest.raises(ImproperlyConfigured, match=r"topic.*there are nameserver, credentials"):
        django_tasks.task_backends["wrong"]


PROJECT = """
import sys
from pathlib import Path
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "shop.db"}},
    INSTALLED_APPS=["escrowmq.integrations.django"],
    TASKS={"default": {"BACKEND": "%s", "OPTIONS": {"outbox": False}}},
)
import django
django.setup()
import django_tasks

@django_tasks.task
def write(text):
    Path("done").write_text(text)

if __name__ == "__main__":
    sys.modules["project"] = sys.modules["__main__"]
    from django.core.management import execute_from_command_line
    execute_from_command_line()
"""


def test_a_worker_runs_until_it_is_told_to_end(escrowmq_server: Broker, tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(PROJECT % BACKEND)
    worker = Process(
        [sys.executable, "project.py", "escrowmq_worker"], folder=tmp_path, name="worker"
    )
    worker.wait_line("escrowmq_worker ready", within_s=60)
    enqueue = "import project; project.write.enqueue('from another process')"
    subprocess.run([sys.executable, "-c", enqueue], cwd=tmp_path, check=True, timeout=60)
    escrowmq_server.wait_consumed("django-tasks-default-workers")
    assert (tmp_path / "done").read_text() == "from another process"
    assert worker.stop() == 0


SLOW = """
import threading
from escrowmq.integrations.django.tasks import EscrowMQBackend

begun, forked = threading.Event(), threading.Event()
calls = []

class Slow(EscrowMQBackend):
    def topic_of(self, queue):
        if threading.current_thread().name == "opens":
            calls.append(queue)
            if len(calls) == 2:  # of the message, and then of the producer
                begun.set()
                forked.wait()
        return super().topic_of(queue)
"""

FORKS = """
import os, signal, threading
import project, slow
from escrowmq.integrations.django.tasks import close_clients

opens = threading.Thread(target=project.write.enqueue, args=("parent",), name="opens")
opens.start()
slow.begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    project.write.enqueue("child")
    close_clients()
    os._exit(0)
slow.forked.set()
opens.join()
close_clients()
ended = os.waitpid(child, 0)[1]
assert ended == 0, f"the child hung, and had to be ended: {ended}"
"""


def test_a_fork_while_another_thread_opens_the_producer_can_enqueue(
    escrowmq_server: Broker, tmp_path: Path
) -> None:
    """The thread is not in the child, and its lock was held there for ever."""
    (tmp_path / "project.py").write_text(PROJECT % "slow.Slow")
    (tmp_path / "slow.py").write_text(SLOW)
    subprocess.run([sys.executable, "-c", FORKS], cwd=tmp_path, check=True, timeout=60)
    tasks = escrowmq_server.delivered("django-tasks-default")
    assert sorted(json.loads(task)["args"] for task in tasks) == [["child"], ["parent"]]
