from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from escrowmq.client.assignment_events import AssignmentCallbacks
from escrowmq.client.client_settings import parse_client_options
from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import ClientClosed

A, B, RETRY = (MessageQueue(topic, "b", 0) for topic in ("A", "B", "%RETRY%G"))


class Spawner:
    """The part of an Instance that is asked here."""

    def __init__(self) -> None:
        self.options = parse_client_options("127.0.0.1:1", {})
        self.is_closed = False

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self.is_closed:
            work.close()
            raise ClientClosed("closed")
        return asyncio.get_running_loop().create_task(work)


def sharing(spawner: Spawner, **told: Any) -> AssignmentCallbacks:
    given = {"on_assigned": None, "on_revoked": None, "own_retries": RETRY.topic, **told}
    return AssignmentCallbacks(spawner, **given)  # type: ignore[arg-type]


def test_calls_come_in_order_and_without_the_groups_own_retries() -> None:
    told: list[tuple[str, list[MessageQueue], bool]] = []

    def plain(queues: list[MessageQueue]) -> None:
        on_loop = threading.current_thread() is threading.main_thread()
        told.append(("assigned", queues, on_loop))

    async def awaited(queues: list[MessageQueue]) -> None:
        told.append(("revoked", queues, threading.current_thread() is threading.main_thread()))

    async def main() -> None:
        found = sharing(Spawner(), on_assigned=plain, on_revoked=awaited)
        found.schedule_assigned([B, RETRY, A])
        found.schedule_revoked([A])
        found.schedule_assigned([RETRY])
        found.schedule_revoked([B])
        await found.wait_for_calls()

    asyncio.run(main())
    assert told == [("assigned", [A, B], False), ("revoked", [A], True), ("revoked", [B], True)]


def test_a_call_that_fails_or_hangs_keeps_none_from_coming(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[list[MessageQueue]] = []
    hangs = threading.Event()

    def assigned(queues: list[MessageQueue]) -> None:
        if queues == [A]:
            hangs.wait()
        told.append(queues)
        raise ValueError("odd")

    async def main() -> None:
        found = sharing(Spawner(), on_assigned=assigned, patience_s=0.05)
        found.schedule_assigned([A])
        found.schedule_assigned([B])
        await found.wait_for_calls()
        hangs.set()

    asyncio.run(main())
    assert told[0] == [B]
    assert "it has not returned within 0.05 s" in caplog.text
    assert "ValueError: odd" in caplog.text


def test_nobody_is_told_when_nobody_asked_or_the_client_is_closed() -> None:
    async def main() -> None:
        spawner = Spawner()
        await sharing(spawner).wait_for_calls()
        sharing(spawner).schedule_assigned([A])
        spawner.is_closed = True
        sharing(spawner, on_assigned=print).schedule_assigned([A])

    asyncio.run(main())
