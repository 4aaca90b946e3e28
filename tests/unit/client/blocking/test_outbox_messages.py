from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.client.core.sending import Outcome
from tests.unit.client.peer import Peer, a_place, ends


@contextmanager
def place() -> Iterator[tuple[str, Peer]]:
    """A name server and a broker on a loop of their own."""
    ready, stop = threading.Event(), threading.Event()
    found: list[tuple[str, Peer]] = []

    async def serve() -> None:
        async with a_place("T") as (names, broker):
            found.append((names.address, broker))
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    ready.wait(30)
    try:
        yield found[0]
    finally:
        stop.set()
        thread.join(30)


def test_messages_are_stored_and_then_committed_or_abandoned() -> None:
    with place() as (address, broker), escrowmq.Producer(address, group="PG") as producer:
        marked = producer.marked("db")
        marked.send([escrowmq.Message("T", b"x")])
        marked.leave()
        assert marked.outcome is Outcome.UNKNOWN
        marked.commit()
        assert (marked.outcome, marked.error) == (Outcome.COMMIT, None)
        assert len(marked.key) >= 32
        gone = producer.marked("db")
        gone.send([escrowmq.Message("T", b"x")])
        gone.abandon()
        producer.marked("db").send([escrowmq.Message("T", b"x")])  # behind it, in the loop's order
        found = [end["commitOrRollback"] for end in ends(broker)]
        assert found[:2] == ["8", "12"]
        assert broker.codes().count(Request.SEND_MESSAGE_V2) == 3


@pytest.mark.parametrize("has_others", [True, False])
def test_a_producer_that_is_closed_meanwhile_raises_nothing_behind_the_commit(
    caplog: pytest.LogCaptureFixture, *, has_others: bool
) -> None:
    """Whether the process's thread has ended with its last client, or others keep it."""
    with place() as (address, _), contextlib.ExitStack() as others:
        if has_others:
            others.enter_context(escrowmq.Producer(address, group="others"))
        with escrowmq.Producer(address, group="PG") as producer:
            marked = producer.marked("db")
            marked.send([escrowmq.Message("T", b"x")])
            marked.leave()
        with caplog.at_level(logging.WARNING):
            marked.commit()
    assert "will ask" in caplog.text
