"""A WSGI application, as `gunicorn -k gevent` serves it: one request waits for another."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import escrowmq


@functools.cache
def producer() -> escrowmq.Producer:
    """Made by the first request, as nothing is to be opened before a worker is forked."""
    return escrowmq.Producer(os.environ["HELLO_NAMESERVER"], group="hello")


def application(
    environ: dict[str, Any], start_response: Callable[[str, list[tuple[str, str]]], object]
) -> Iterable[bytes]:
    """`/wait` answers with what `/send` has sent."""
    start_response("200 OK", [("Content-Type", "text/plain")])
    if environ["PATH_INFO"] == "/send":
        return [producer().send("hellos", b"hello").message_id.encode()]
    with escrowmq.Consumer(
        os.environ["HELLO_NAMESERVER"], group="hello-waits", topic="hellos"
    ) as consumer:
        (message,) = consumer.receive(1, timeout_s=30)
        message.ack()
        return [message.body]
