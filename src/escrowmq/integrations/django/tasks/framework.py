"""Imports Django's tasks: from Django since 6.0, before that from the package django-tasks."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any, Final

from escrowmq.base.extras import require

_HOME: Final = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"
if _HOME == "django_tasks":
    require("django-tasks", "django_tasks")


def _of(module: str, name: str) -> Any:  # noqa: ANN401 - the two have types of their own
    return getattr(importlib.import_module(f"{_HOME}{module}"), name)


BaseTaskBackend: Final = _of(".backends.base", "BaseTaskBackend")
Task: Final = _of(".base", "Task")
TaskContext: Final = _of(".base", "TaskContext")
TaskError: Final = _of(".base", "TaskError")
TaskResult: Final = _of(".base", "TaskResult")
TaskResultStatus: Final = _of(".base", "TaskResultStatus")
task_backends: Final = _of("", "task_backends")
task_enqueued: Final = _of(".signals", "task_enqueued")
task_started: Final = _of(".signals", "task_started")
task_finished: Final = _of(".signals", "task_finished")
