"""Imports Django's tasks: from Django since 6.0, before that from the package django-tasks."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Any, Final

from escrowmq.base.extras import require_extra

_HOME: Final = "django.tasks" if find_spec("django.tasks") is not None else "django_tasks"
if _HOME == "django_tasks":
    require_extra("django-tasks", "django_tasks")


def _imported(module: str, name: str) -> Any:  # noqa: ANN401 - the two have types of their own
    return getattr(importlib.import_module(f"{_HOME}{module}"), name)


BaseTaskBackend: Final = _imported(".backends.base", "BaseTaskBackend")
Task: Final = _imported(".base", "Task")
TaskContext: Final = _imported(".base", "TaskContext")
TaskError: Final = _imported(".base", "TaskError")
TaskResult: Final = _imported(".base", "TaskResult")
TaskResultStatus: Final = _imported(".base", "TaskResultStatus")
task_backends: Final = _imported("", "task_backends")
task_enqueued: Final = _imported(".signals", "task_enqueued")
task_started: Final = _imported(".signals", "task_started")
task_finished: Final = _imported(".signals", "task_finished")
