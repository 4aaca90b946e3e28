"""The application whose migrations create the tables."""

from __future__ import annotations

from django.apps import AppConfig


class EscrowMQConfig(AppConfig):
    """Its label in `django_migrations` is `escrowmq`."""

    name = "escrowmq.integrations.django"
    label = "escrowmq"
    verbose_name = "EscrowMQ"
