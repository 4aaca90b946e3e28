"""Imports Django's tasks: from Django since 6.0, before that from the package django-tasks."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any, Final

from escrowmq.base.extras import require_extra

_HOME: Final = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"
if _HOME == "django_tasks":
    require_extra("django-tasks", "django_tasks")


def _import_task_name(module: str, name: str) -> Any:  # noqa: ANN401 - the two have types of their own
    return getattr(importlib.import_module(f"{_HOME}{module}"), name)


BaseTaskBackend: Final = _import_task_name(".backends.base", "BaseTaskBackend")
Task: Final = _import_task_name(".base", "Task")
TaskContext: Final = _import_task_name(".base", "TaskContext")
TaskError: Final = _import_task_name(".base", "TaskError")
TaskResult: Final = _import_task_name(".base", "TaskResult")
TaskResultStatus: Final = _import_task_name(".base", "TaskResultStatus")
task_backends: Final = _import_task_name("", "task_backends")
task_enqueued: Final = _import_task_name(".signals", "task_enqueued")
task_started: Final = _import_task_name(".signals", "task_started")
task_finished: Final = _import_task_name(".signals", "task_finished")
