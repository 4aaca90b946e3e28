"""The Django application whose migrations create the tables."""

from __future__ import annotations

from django.apps import AppConfig


class EscrowMQConfig(AppConfig):
    """The application; its label in `django_migrations` is `escrowmq`."""

    name = "escrowmq.integrations.django"
    label = "escrowmq"
    verbose_name = "EscrowMQ"
