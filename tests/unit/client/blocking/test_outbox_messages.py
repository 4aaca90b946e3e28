from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

import escrowmq
from escrowmq.base.codes import Request, Response
from escrowmq.client.core.sending import Outcome
from escrowmq.errors import InvalidMessage, PermissionDenied, SendFailed
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
        marked = producer.marked_messages("db")
        marked.send([escrowmq.Message("T", b"x")])
        marked.leave_to_marker()
        assert marked.outcome is Outcome.UNKNOWN
        marked.report_commit()
        producer.flush()
        assert (marked.outcome, marked.error) == (Outcome.COMMIT, None)
        assert len(marked.key) >= 32
        gone = producer.marked_messages("db")
        gone.send([escrowmq.Message("T", b"x")])
        gone.abandon()
        producer.marked_messages("db").send(
            [escrowmq.Message("T", b"x")]
        )  # behind it, in the loop's order
        found = [end["commitOrRollback"] for end in ends(broker)]
        assert found[:2] == ["8", "12"]
        assert broker.codes().count(Request.SEND_MESSAGE_V2) == 3


def test_a_message_whose_answer_is_lost_is_not_stored_twice_where_once_is_promised() -> None:
    with place() as (address, broker), escrowmq.Producer(address, group="PG") as producer:
        broker.answers[Request.SEND_MESSAGE_V2] = lambda link, command: link.transport.abort()
        with pytest.raises(SendFailed):
            producer.marked_messages("db").without_resends().send([escrowmq.Message("T", b"x")])
        assert broker.codes().count(Request.SEND_MESSAGE_V2) == 1


@pytest.mark.parametrize("has_others", [True, False])
def test_a_producer_that_is_closed_meanwhile_raises_nothing_behind_the_commit(
    caplog: pytest.LogCaptureFixture, *, has_others: bool
) -> None:
    """Whether the process's thread has ended with its last client, or others keep it."""
    with place() as (address, _), contextlib.ExitStack() as others:
        if has_others:
            others.enter_context(escrowmq.Producer(address, group="others"))
        with escrowmq.Producer(address, group="PG") as producer:
            marked = producer.marked_messages("db")
            marked.send([escrowmq.Message("T", b"x")])
            marked.leave_to_marker()
        with caplog.at_level(logging.WARNING):
            marked.report_commit()
    assert "will ask" in caplog.text


def test_a_flush_waits_for_the_commits_of_its_thread() -> None:
    with place() as (address, broker), escrowmq.Producer(address, group="PG") as producer:
        for number in range(1, 20):
            marked = producer.marked_messages("db")
            marked.send([escrowmq.Message("T", b"x")])
            marked.leave_to_marker()
            marked.report_commit()
            producer.flush()
            assert marked.outcome is Outcome.COMMIT
            assert len(ends(broker)) == number


def test_one_message_is_stored_in_one_request_and_needs_no_task() -> None:
    with place() as (address, broker), escrowmq.Producer(address, group="PG") as producer:
        producer.send("T", b"so that the broker is connected")
        tasks = threading.Event()
        inner = producer._inner
        spawn = inner.instance.spawn

        def spawned(work: Any) -> Any:
            tasks.set()
            return spawn(work)

        inner.instance.spawn = spawned  # type: ignore[method-assign]
        marked = producer.marked_messages("db")
        marked.send([escrowmq.Message("T", b"x")])
        marked.leave_to_marker()
        marked.report_commit()
        producer.flush()
        assert not tasks.is_set()
        assert len(ends(broker)) == 1


def test_a_refused_message_is_raised_and_nothing_is_left_open() -> None:
    with place() as (address, broker), escrowmq.Producer(address, group="PG") as producer:
        producer.send("T", b"so that the broker is connected")
        broker.answers[Request.SEND_MESSAGE_V2] = lambda link, command: link.reply(
            command, Response.NO_PERMISSION, remark="planted"
        )
        marked = producer.marked_messages("db")
        with pytest.raises(PermissionDenied, match="planted"):
            marked.send([escrowmq.Message("T", b"x")])
        assert marked.outcome is Outcome.ROLLBACK
        del broker.answers[Request.SEND_MESSAGE_V2]
        with pytest.raises(InvalidMessage):
            producer.marked_messages("db").send([escrowmq.Message("T", b"x" * 5_000_000)])


def test_ids_of_many_threads_differ() -> None:
    with place() as (address, _), escrowmq.Producer(address, group="PG") as producer:
        with ThreadPoolExecutor(8) as pool:
            keys = list(pool.map(lambda _: producer.marked_messages("db").key, range(4_000)))
        assert len(set(keys)) == len(keys)
