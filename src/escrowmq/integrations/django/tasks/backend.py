"""Sends tasks as messages, alone or with the database transaction in which they are enqueued."""

from __future__ import annotations

import os
import threading
from typing import Any, Final, NamedTuple

import msgspec
from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections
from django.utils import timezone
from django.utils.crypto import get_random_string

from escrowmq.client.blocking.producer import Producer
from escrowmq.client.client_settings import Credentials
from escrowmq.client.core.message import Message
from escrowmq.integrations.django.outbox import Outbox
from escrowmq.integrations.django.tasks.framework import (
    BaseTaskBackend,
    TaskResult,
    TaskResultStatus,
    task_enqueued,
)

_APP: Final = "escrowmq.integrations.django"
_ID_SIZE: Final = 32


class BackendOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The OPTIONS of the backend."""

    nameserver: str | None = None
    """The name servers' addresses; by default those in the environment variable NAMESRV_ADDR."""
    credentials: Credentials | None = None
    group: str = "django-tasks"
    """The producer group; the names of workers' groups and of queues' topics start with it."""
    using: str = DEFAULT_DB_ALIAS
    """The database in whose transactions tasks are enqueued."""
    outbox: bool | None = None
    """Whether tasks enqueued in a transaction are sent when it commits. By default True if the
    application is in INSTALLED_APPS."""
    sends_in_test_case: bool = False
    """Whether `captureOnCommitCallbacks(execute=True)` sends tasks in Django's TestCase."""
    attempts_max: int = 0
    """How often a failed task is retried, with RocketMQ's back-off; after that it is a dead letter
    of its workers' group."""
    imports: list[str] = []
    """Modules that workers import, besides those called `tasks` of the installed applications. A
    task of any other module is refused."""
    once: bool = False
    """Whether each task runs in a database transaction that also records the task, so that a second
    delivery changes nothing. Needs the application's tables."""


class TaskBody(msgspec.Struct, rename="camel"):
    """The contents of a task's message."""

    task: str
    """The import path of the task's function."""
    args: list[Any]
    kwargs: dict[str, Any]
    id: str
    enqueued_at: str


class _Clients(NamedTuple):
    producer: Producer
    outbox: Outbox | None


_lock = threading.Lock()
_clients: dict[str, _Clients] = {}
"""The clients of the process by the backend's alias. Django makes a backend per thread; the
producer is shared."""


class EscrowMQBackend(BaseTaskBackend):
    """Enqueues tasks at a broker. Results and priorities are not supported."""

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        self.alias: str = alias
        self.queues: set[str]
        try:
            self.settings = msgspec.convert(self.options, BackendOptions)
        except msgspec.ValidationError as error:
            names = ", ".join(BackendOptions.__struct_fields__)
            raise ImproperlyConfigured(f"TASKS[{alias!r}]: {error}; there are {names}") from error

    def topic_of(self, queue: str) -> str:
        """Return the topic for tasks of a queue."""
        return f"{self.settings.group}-{queue}"

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401 - see framework
        """Send a task to a worker; inside a transaction, when it commits."""
        self.validate_task(task)
        result = self.result(task, get_random_string(_ID_SIZE), args, kwargs)
        object.__setattr__(result, "enqueued_at", timezone.now())
        body = TaskBody(
            task.module_path, result.args, result.kwargs, result.id, str(result.enqueued_at)
        )
        due = task.run_after
        if due is not None and timezone.is_naive(due):
            due = timezone.make_aware(due)
        self._send(
            Message(
                self.topic_of(task.queue_name),
                msgspec.json.encode(body),
                keys=[result.id],
                deliver_at=due,
            )
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def result(self, task: Any, task_id: str, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Return a task's result object as it is before the task has run; real results are not
        supported."""
        return TaskResult(
            task=task,
            id=task_id,
            status=TaskResultStatus.READY,
            enqueued_at=None,
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=args,
            kwargs=kwargs,
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )

    def _send(self, message: Message) -> None:
        clients = self._get_clients()
        if clients.outbox is not None and connections[self.settings.using].in_atomic_block:
            clients.outbox.send(message)
        else:
            clients.producer.send(message)

    def _get_clients(self) -> _Clients:
        """Return the process's producer, opened if necessary."""
        with _lock:
            known = _clients.get(self.alias)
            if known is None:
                known = _clients[self.alias] = self._make_clients()
            return known

    def _make_clients(self) -> _Clients:
        settings = self.settings
        producer = Producer(
            settings.nameserver,
            group=settings.group,
            topics=[self.topic_of(queue) for queue in self.queues],
            credentials=settings.credentials,
        )
        has_outbox = apps.is_installed(_APP) if settings.outbox is None else settings.outbox
        if not has_outbox:
            return _Clients(producer, None)
        return _Clients(
            producer,
            Outbox(producer, settings.using, sends_in_test_case=settings.sends_in_test_case),
        )


def close_clients() -> None:
    """Close this process's clients for enqueuing tasks. They are opened again when needed."""
    with _lock:
        while _clients:
            _, clients = _clients.popitem()
            clients.producer.close()


def _forget_parents_clients() -> None:
    """Forget the parent's clients in a forked child. The lock is replaced, because a thread of the
    parent may have held it."""
    global _lock
    _lock = threading.Lock()
    _clients.clear()


os.register_at_fork(after_in_child=_forget_parents_clients)
