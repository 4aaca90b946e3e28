"""How queues change hands."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from escrowmq.aio import Consumer
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.client import consumer_state, instance
from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError

from .peer import Link
from .test_consumer import QUEUE, QUICK, Script, a_script, record

OTHER = MessageQueue("T", "b", 1)


def lock_all(link: Link, command: Command) -> None:
    link.reply(
        command, body=json.dumps({"lockOKMQSet": json.loads(command.body)["mqSet"]}).encode()
    )


@asynccontextmanager
async def an_orderly_member(count: int, **more: Any) -> AsyncIterator[tuple[Consumer, Script]]:
    """A member that has the lock of the only queue, with so many messages in it."""
    async with a_script() as (names, script):
        script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
        script.records = {n: record(n) for n in range(count)}
        settings: dict[str, Any] = {**QUICK, "is_orderly": True, **more}
        async with Consumer(names, group="g", topic="T", **settings) as consumer:
            yield consumer, script


def test_a_queue_whose_giving_up_failed_can_be_read_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It counted as one that is being left for good, and this member never began it anew."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                command, body=b'{"lockOKMQSet":[{"topic":"T","brokerName":"b","queueId":0}]}'
            )
            script.records = {0: record(0)}
            settings: dict[str, Any] = {**QUICK, "is_orderly": True}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (message,) = await consumer.receive(1)
                reading = consumer._state
                keep = reading.offsets.store_offsets
                failed = asyncio.Event()

                async def fail(readers: Any) -> None:
                    for reader in readers:
                        if reader.is_dropped:
                            reading.offsets.store_offsets = keep  # type: ignore[method-assign]
                            failed.set()
                            raise RuntimeError("planted")

                await reading._drop_queues([QUEUE])
                reading.offsets.store_offsets = fail  # type: ignore[method-assign]
                await message.ack()
                await failed.wait()
                await asyncio.sleep(0)
                assert QUEUE not in reading.leaving
                (again,) = await consumer.receive(1)
                assert again.queue_offset == 0

    asyncio.run(go())
    assert "planted" in caplog.text


@pytest.mark.parametrize("is_orderly", [False, True])
@pytest.mark.parametrize("moved_to", [7, 0])
def test_a_failed_message_that_its_queue_was_moved_past_is_not_lost(
    moved_to: int, is_orderly: bool
) -> None:
    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0), 7: record(7)}
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            settings = {**QUICK, "is_orderly": is_orderly}
            async with Consumer(names, group="g", topic="T", **settings) as consumer:
                (first,) = await consumer.receive(1)
                await script.broker.until(lambda: script.is_asked_at(1))
                script.codes = [(Response.PULL_OFFSET_MOVED, moved_to)]
                script.broker.requests.clear()
                await consumer.seek(QUEUE, 1)  # pulls again
                await script.broker.until(lambda: script.is_asked_at(moved_to))
                await first.retry()
                (second,) = await consumer.receive(1)
                assert second.queue_offset == moved_to
            backs = [ext["offset"] for ext in script.asked(Request.CONSUMER_SEND_MSG_BACK)]
            # It is read again from 0, so that returning it would double it.
            assert backs == (["1000"] if moved_to == 7 else [])

    asyncio.run(go())


def test_a_failed_message_of_a_place_that_was_left_waits_for_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_state, "_KEEP_HERE_S", 0.01)

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            tries: list[Command] = []

            def take_back(link: Link, command: Command) -> None:
                tries.append(command)
                code = Response.SYSTEM_ERROR if len(tries) == 1 else Response.SUCCESS
                link.reply(command, code, remark="planted")

            script.broker.answers |= {
                Request.CONSUMER_SEND_MSG_BACK: take_back,
                Request.SEND_MESSAGE_V2: lambda link, command: link.reply(
                    command, Response.NO_PERMISSION, remark="planted"
                ),
            }
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                (first,) = await consumer.receive(1)
                await consumer.seek(QUEUE, 7)
                await first.retry()
                await script.broker.until(lambda: len(tries) == 2)

    asyncio.run(go())


@pytest.mark.parametrize(("passed_s", "is_kept"), [(29, True), (31, False)])
def test_a_lock_is_lost_after_thirty_seconds_of_the_steady_clock(
    passed_s: float, *, is_kept: bool
) -> None:
    """The wall clock told how long ago the last renewal was: set back, it kept the queue from being
    given up, while another member had the lock already."""

    async def go() -> None:
        async with an_orderly_member(1) as (consumer, _):
            (message,) = await consumer.receive(1)
            await message.ack()
            reading = consumer._state
            now = reading.instance.now

            async def lock_none(_: object) -> set[Any]:
                return set()

            reading.locks.lock = lock_none  # type: ignore[method-assign,assignment]
            reading.balance.request_round = lambda: None  # type: ignore[method-assign]
            reading.instance.now = lambda: now() + passed_s  # type: ignore[method-assign]
            await reading._renew_locks()
            assert (QUEUE in reading.readers) is is_kept

    asyncio.run(go())


def test_an_orderly_queue_hands_out_nothing_until_its_old_lock_is_confirmed() -> None:
    """A process that was stopped for a minute went on with what it had fetched, while another
    member, which had the lock by then, handled the same messages."""

    async def go() -> None:
        async with an_orderly_member(3) as (consumer, script):
            (first,) = await consumer.receive(1)
            await script.broker.until(lambda: script.is_asked_at(3))
            reading = consumer._state
            now = reading.instance.now
            reading.instance.now = lambda: now() + 31  # type: ignore[method-assign]
            await first.ack()
            assert await consumer.receive(1, timeout_s=0.01) == []
            waiting = asyncio.create_task(consumer.receive(1))
            await asyncio.sleep(0)
            await reading._renew_locks()
            assert [each.queue_offset for each in await waiting] == [1]

    asyncio.run(go())


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_seek_moves_the_group_only_where_offsets_are_committed_automatically(
    *, auto_commit: bool
) -> None:
    """With `auto_commit=False` only `commit()` commits. A program that looked at the first messages
    under the name of a group set its offset back, and the group consumed all of them again."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.stored_offset = 5
            script.records = {n: record(n) for n in range(9)}
            settings: dict[str, Any] = {**QUICK, "queues": [QUEUE], "auto_commit": auto_commit}
            async with Consumer(names, group="g", **settings) as consumer:
                assert (await consumer.receive(1))[0].queue_offset == 5
                await consumer.seek(QUEUE, "first")
                assert (await consumer.receive(1))[0].queue_offset == 0
            assert script.stored_offset == (0 if auto_commit else 5)

    asyncio.run(go())


@pytest.mark.parametrize("is_back", [True, False])
def test_a_seek_moves_a_queue_that_changed_hands_while_a_broker_was_asked_or_fails(
    *, is_back: bool
) -> None:
    """It moved the reader that had the queue before: this member read on elsewhere although `seek`
    had returned, or the offset of a queue that was another member's by then was committed."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(9)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                assert (await consumer.receive(1))[0].queue_offset == 0
                reading = consumer._state

                async def move(link: Link, command: Command) -> None:
                    if not is_back:
                        reading._chosen = {OTHER}
                    await reading._drop_queues([QUEUE])
                    await reading.assign_queues("T", [QUEUE])
                    link.reply(command, ext={"offset": "7"})

                def answer(link: Link, command: Command) -> None:
                    reading.instance.spawn(move(link, command))

                script.broker.answers[Request.GET_MAX_OFFSET] = answer
                if is_back:
                    await consumer.seek(QUEUE, "last")
                    assert (await consumer.receive(1))[0].queue_offset == 7
                else:
                    with pytest.raises(UsageError, match="is not read by this member"):
                        await consumer.seek(QUEUE, "last")
            assert script.stored_offset == (7 if is_back else 0)

    asyncio.run(go())


@pytest.mark.parametrize("is_dropped", [False, True])
def test_a_member_that_has_lost_its_lock_does_not_set_the_groups_offset_back(
    *, is_dropped: bool
) -> None:
    """When its handler ended at last, it committed what it had handled, although another member
    had the queue and was further: after its next start the group repeated all of that in between,
    behind what it had handled already."""

    async def go() -> None:
        async with an_orderly_member(9) as (consumer, script):
            (message,) = await consumer.receive(1)
            await script.broker.until(lambda: script.stored_offset == 0)
            reading = consumer._state
            now = reading.instance.now
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda link, command: link.reply(
                command, body=b'{"lockOKMQSet":[]}'
            )
            reading.instance.now = lambda: now() + 61  # type: ignore[method-assign]
            script.stored_offset = 8  # of the member that has the queue now
            if is_dropped:
                await reading._renew_locks()
                assert QUEUE in reading.leaving
            script.broker.requests.clear()
            await message.ack()
            if is_dropped:
                await script.broker.until(lambda: script.asked(Request.UNLOCK_BATCH_MQ))
            else:
                await reading.store_offsets()
                await consumer.seek(QUEUE, 1)  # pulls again
                await script.broker.until(lambda: script.is_asked_at(1))
                pulls = script.asked(Request.PULL_MESSAGE)
                assert {ext["commitOffset"] for ext in pulls} == {"0"}
                script.stored_offset = 8
        assert script.stored_offset == 8

    asyncio.run(go())


def test_a_member_whose_lock_was_only_renewed_late_stores_what_it_has_done() -> None:
    async def go() -> None:
        async with an_orderly_member(9, commit_interval_ms=60_000) as (consumer, script):
            (message,) = await consumer.receive(1)
            now = consumer._state.instance.now
            consumer._state.instance.now = lambda: now() + 61  # type: ignore[method-assign]
            await message.ack()
        assert script.stored_offset == 1

    asyncio.run(go())


def test_the_age_of_a_lock_counts_from_its_request() -> None:
    """A process that was stopped between the request and the answer took a lock that had expired
    for a new one, and handled messages of a queue that another member had."""

    async def go() -> None:
        async with an_orderly_member(9) as (consumer, script):
            (first,) = await consumer.receive(1)
            await first.ack()
            reading = consumer._state
            now, held = reading.instance.now, list[tuple[Link, Command]]()
            script.broker.answers[Request.LOCK_BATCH_MQ] = lambda *asked: held.append(asked)
            renewing = asyncio.create_task(reading._renew_locks())
            await script.broker.until(lambda: held)
            reading.instance.now = lambda: now() + 61  # type: ignore[method-assign]
            lock_all(*held[0])
            await renewing
            assert await consumer.receive(1, timeout_s=0.01) == []
            script.broker.answers[Request.LOCK_BATCH_MQ] = lock_all
            await reading._renew_locks()
            assert (await consumer.receive(1))[0].queue_offset == 1

    asyncio.run(go())


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_no_messages_cannot_be_asked_for(count: Any) -> None:
    """A program that had room for none asked for 0: it got none, and later calls got none of those
    either that waited here, until the next one came."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0)}
            async with Consumer(names, group="g", topic="T", **QUICK) as consumer:
                await script.broker.until(lambda: script.is_asked_at(1))
                with pytest.raises(UsageError, match="a whole number from 1 on"):
                    await consumer.receive(count, timeout_s=0.01)
                assert len(await consumer.receive(1)) == 1

    asyncio.run(go())


def test_nothing_of_a_topic_comes_after_it_was_unsubscribed_from() -> None:
    """Messages that waited here came until the next sharing of the queues."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {0: record(0), 1: record(1)}
            topics = {"T": "", "U": ""}
            async with Consumer(names, group="g", topics=topics, **QUICK) as consumer:
                await script.broker.until(lambda: script.is_asked_at(2))
                await consumer.unsubscribe("T")
                assert await consumer.receive(9, timeout_s=0.1) == []
            assert script.stored_offset in (None, 0)

    asyncio.run(go())


@pytest.mark.parametrize(("late_s", "goes_on_at"), [(59, 1), (61, 8)])
def test_a_lock_that_comes_back_after_another_member_may_have_had_it_begins_anew(
    late_s: int, goes_on_at: int
) -> None:
    """A process that was stopped for more than a minute got its lock again after another member
    had been there, and handled in its old order what that one had handled and committed."""

    async def go() -> None:
        async with an_orderly_member(9, commit_interval_ms=60_000) as (consumer, script):
            (message,) = await consumer.receive(1)
            await message.ack()
            reading = consumer._state
            now = reading.instance.now
            reading.instance.now = lambda: now() + late_s  # type: ignore[method-assign]
            script.stored_offset = 8  # of the member that had the queue meanwhile
            await reading._renew_locks()
            (message,) = await consumer.receive(1)
            assert message.queue_offset == goes_on_at

    asyncio.run(go())


def test_a_queue_is_given_up_although_too_much_was_under_way_at_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It stayed one that is being left for good: its lock was renewed, and no member read it."""
    monkeypatch.setattr(consumer_state, "_LEAVE_AGAIN_S", 0.01)

    async def go() -> None:
        async with an_orderly_member(2) as (consumer, script):
            (message,) = await consumer.receive(1)
            reading = consumer._state
            with monkeypatch.context() as full:
                full.setattr(instance, "TASKS_MAX", 0)
                await reading._drop_queues([QUEUE])
            await message.ack()
            await script.broker.until(lambda: script.asked(Request.UNLOCK_BATCH_MQ))
            (again,) = await consumer.receive(1)
            assert again.queue_offset == 1

    asyncio.run(go())


def test_an_operator_who_resets_a_queue_commits_no_others() -> None:
    """With `auto_commit=False` all that was acknowledged was committed with it, before the program
    had decided to."""

    async def go() -> None:
        async with a_script() as (names, script):
            script.records = {n: record(n) for n in range(3)}
            script.stored_offset = 0
            async with Consumer(
                names, group="g", topic="T", auto_commit=False, **QUICK
            ) as consumer:
                await (await consumer.receive(1))[0].ack()
                (link,) = script.broker.links
                table = b'{"offsetTable":{{"brokerName":"b","queueId":7,"topic":"T"}:5}}'
                link.ask(Request.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, table)
                link.ask(Request.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
                await script.broker.until(lambda: script.has_replies(1))
                await consumer.committed(QUEUE)  # after all that was sent before it
                assert script.stored_offset == 0

    asyncio.run(go())


def test_an_operator_resets_a_queue_whose_last_message_is_still_handled() -> None:
    """The member that was leaving the queue stored how far it had come, over what was set."""

    async def go() -> None:
        async with an_orderly_member(9) as (consumer, script):
            (message,) = await consumer.receive(1)
            reading = consumer._state
            await reading._drop_queues([QUEUE])
            assert QUEUE in reading.leaving
            (link,) = script.broker.links
            script.stored_offset = 5
            table = b'{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:5}}'
            link.ask(Request.RESET_CONSUMER_CLIENT_OFFSET, {"topic": "T", "group": "g"}, table)
            link.ask(Request.GET_CONSUMER_STATUS_FROM_CLIENT, {"topic": "T", "group": "g"})
            await script.broker.until(lambda: script.has_replies(1))
            await message.ack()
            await script.broker.until(lambda: script.asked(Request.UNLOCK_BATCH_MQ))
            assert script.stored_offset == 5

    asyncio.run(go())


def test_a_queue_that_is_being_released_when_its_member_closes_is_told_of_once() -> None:
    """`on_revoked` was called a second time for it."""
    told: list[MessageQueue] = []

    async def go() -> None:
        async with an_orderly_member(1, on_revoked=told.extend) as (consumer, script):
            (message,) = await consumer.receive(1)
            reading = consumer._state
            held: list[tuple[Link, Command]] = []
            script.broker.answers[Request.UPDATE_CONSUMER_OFFSET] = lambda link, command: (
                held.append((link, command))
            )
            await reading._drop_queues([QUEUE])
            await message.ack()
            await script.broker.until(lambda: held)
            closing = asyncio.create_task(consumer.close())
            await script.broker.until(lambda: len(held) == 2)
            for link, command in held:
                link.reply(command)
            await closing

    asyncio.run(go())
    assert told == [QUEUE]
