"""Runs tasks that were enqueued at a broker."""

from __future__ import annotations

import contextlib
import importlib
import logging
import socket
import sys
import traceback
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec
from django.apps import apps
from django.db import close_old_connections
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.module_loading import module_has_submodule

from escrowmq.client.blocking.consumer import Consumer
from escrowmq.client.blocking.delivery import Delivery
from escrowmq.errors import UsageError
from escrowmq.integrations.django.inbox import consume_once
from escrowmq.integrations.django.tasks.backend import EscrowMQBackend, TaskBody
from escrowmq.integrations.django.tasks.framework import (
    Task,
    TaskContext,
    TaskError,
    TaskResultStatus,
    task_backends,
    task_finished,
    task_started,
)

_log = logging.getLogger(__name__)

CONCURRENCY: Final = 10


@contextlib.contextmanager
def working(
    alias: str = "default", *, queues: Sequence[str] = (), concurrency: int = CONCURRENCY
) -> Iterator[None]:
    """Run the tasks of some queues of a backend, or of all, inside the block, with a number of
    threads per queue. The end of the block waits for running tasks. A task is acknowledged after it
    has run. Only tasks of modules that are imported are run: those called `tasks` of the installed
    applications, those of the option `imports`, and any that the process has imported itself."""
    backend = task_backends[alias]
    if not isinstance(backend, EscrowMQBackend):
        raise UsageError(f"TASKS[{alias!r}] is {type(backend).__name__}, and not EscrowMQBackend")
    unknown = set(queues) - backend.queues
    if unknown:
        raise UsageError(
            f"the backend {alias!r} has no queue {', '.join(sorted(unknown))}; it has "
            f"{', '.join(sorted(backend.queues))}"
        )
    _import_tasks(backend.settings.imports)
    with contextlib.ExitStack() as stack:
        for queue in queues or sorted(backend.queues):
            stack.enter_context(_open_consumer(backend, queue, concurrency))
        yield


def _import_tasks(imports: Sequence[str]) -> None:
    """Import the modules that have tasks. A message cannot make a worker import a module."""
    for name in imports:
        importlib.import_module(name)
    for app in apps.get_app_configs():
        if not module_has_submodule(app.module, "tasks"):
            continue
        try:
            importlib.import_module(f"{app.name}.tasks")
        except Exception:  # noqa: BLE001 - perhaps another tool's, which is not installed here
            _log.warning("%s.tasks cannot be imported; it has no tasks", app.name, exc_info=True)


def _find_imported(path: str) -> Any:  # noqa: ANN401 - whatever is there
    """Return the object with an import path. Nothing is imported for it: other paths are
    refused."""
    name, _, attribute = path.rpartition(".")
    module = sys.modules.get(name)
    if module is None:
        raise UsageError(
            f"the task {path} is in a module that this worker has not imported, and a message must "
            "not make it import one: call the module `tasks` in an installed application, or name "
            'it in OPTIONS ("imports": [...])'
        )
    return vars(module).get(attribute)  # a module's __getattr__ may import others


def _open_consumer(backend: EscrowMQBackend, queue: str, concurrency: int) -> Consumer:
    settings, runner = backend.settings, _TaskRunner(backend)
    handle = (
        consume_once(using=settings.using)(runner.run)
        if settings.once
        else runner.run_outside_transaction
    )
    topic = backend.topic_of(queue)
    return Consumer(
        settings.nameserver,
        group=f"{topic}-workers",  # for each queue, as the members of a group read the same
        topic=topic,
        handler=handle,
        concurrency=concurrency,
        attempts_max=settings.attempts_max,
        credentials=settings.credentials,
    )


class _TaskRunner:
    """Runs the tasks of one backend."""

    def __init__(self, backend: EscrowMQBackend) -> None:
        self._backend = backend
        self._worker_id = f"{socket.gethostname()}-{id(self):x}"

    def run_outside_transaction(self, message: Delivery) -> None:
        """Run a task outside any transaction. Database connections that were cut are replaced."""
        close_old_connections()
        try:
            self.run(message)
        finally:
            close_old_connections()

    def run(self, message: Delivery) -> None:
        """Run a task. If it raises, so does this, and the message is redelivered or becomes a dead
        letter."""
        result = self._make_result(message)
        sender = type(self._backend)
        now = timezone.now()
        for name in ("started_at", "last_attempted_at"):
            object.__setattr__(result, name, now)
        object.__setattr__(result, "status", TaskResultStatus.RUNNING)
        result.worker_ids.extend([self._worker_id] * (message.deliveries_before + 1))
        task_started.send(sender=sender, task_result=result)
        try:
            context = [TaskContext(task_result=result)] if result.task.takes_context else []
            result.task.call(*context, *result.args, **result.kwargs)
        except (
            BaseException
        ) as error:  # a task that exits has failed, for Django's own backends too
            result.errors.append(
                TaskError(
                    exception_class_path=f"{type(error).__module__}.{type(error).__qualname__}",
                    traceback="".join(traceback.format_exception(error)),
                )
            )
            self._send_signal(result, TaskResultStatus.FAILED)
            raise
        self._send_signal(result, TaskResultStatus.SUCCESSFUL)

    def _send_signal(self, result: Any, status: Any) -> None:  # noqa: ANN401 - see framework
        object.__setattr__(result, "finished_at", timezone.now())
        object.__setattr__(result, "status", status)
        task_finished.send(sender=type(self._backend), task_result=result)

    def _make_result(self, message: Delivery) -> Any:  # noqa: ANN401 - see framework
        body = msgspec.json.decode(message.body, type=TaskBody)
        task = _find_imported(body.task)
        if not isinstance(task, Task):  # a message may come from any sender
            raise UsageError(f"{body.task} is not a task: decorate it with @task")
        result = self._backend.result(task, body.id, body.args, body.kwargs)
        object.__setattr__(result, "enqueued_at", parse_datetime(body.enqueued_at))
        return result
