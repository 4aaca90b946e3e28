"""A backend of Django's tasks: `django.tasks` of Django 6, or the package django-tasks before.
`docs/frameworks.md` is the guide.

    TASKS = {"default": {"BACKEND": "escrowmq.integrations.django.tasks.EscrowMQBackend"}}

A task that is enqueued in `transaction.atomic` runs when that commits, and only then. Workers are
`manage.py escrowmq_worker`.
"""

from escrowmq.integrations.django.tasks.backend import EscrowMQBackend, close_clients
from escrowmq.integrations.django.tasks.worker import working

__all__ = ["EscrowMQBackend", "close_clients", "working"]
