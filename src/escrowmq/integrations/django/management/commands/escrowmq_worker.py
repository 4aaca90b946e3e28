"""`manage.py escrowmq_worker`: runs tasks until the process is stopped."""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from escrowmq.errors import UsageError
from escrowmq.integrations.django.tasks.worker import CONCURRENCY, working


class Command(BaseCommand):
    """Runs tasks until the process is stopped."""

    help = "Runs tasks of EscrowMQ's backend; SIGTERM and SIGINT let those that run come to an end."

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--backend", default="default", help="which of TASKS")
        parser.add_argument("--queue", action="append", default=[], help="all by default")
        parser.add_argument("--concurrency", type=int, default=CONCURRENCY, help="threads a queue")

    def handle(self, *given: Any, **options: Any) -> None:  # noqa: ANN401
        """Run the worker."""
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        try:
            with working(
                options["backend"], queues=options["queue"], concurrency=options["concurrency"]
            ):
                self.stdout.write("escrowmq_worker ready")
                self.stdout.flush()
                stop.wait()
        except UsageError as error:
            raise CommandError(str(error)) from error
