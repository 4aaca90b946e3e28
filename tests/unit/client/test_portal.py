from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from escrowmq.client import greenlets
from escrowmq.client import portal as portals
from escrowmq.client.portal import FinishCallback, Portal
from escrowmq.errors import ClientClosed, ClientForked, WrongThread

DEADLINE_S = 60.0


@pytest.fixture
def portal() -> Iterator[Portal]:
    opened = Portal()
    yield opened
    opened.close()


async def _answer(value: int) -> int:
    await asyncio.sleep(0)
    return value


def test_a_call_returns_or_raises_what_the_coroutine_does(portal: Portal) -> None:
    async def fail() -> None:
        raise KeyError("planted")

    assert portal.call(_answer(3)) == 3
    with pytest.raises(KeyError, match="planted"):
        portal.call(fail())


def test_many_threads_get_their_own_answers(portal: Portal) -> None:
    found: dict[int, list[int]] = {}

    def work(number: int) -> None:
        found[number] = [portal.call(_answer(number * 1000 + n)) for n in range(200)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert found == {n: [n * 1000 + k for k in range(200)] for n in range(16)}


def test_a_call_inside_the_loops_own_thread_is_refused(portal: Portal) -> None:
    async def inner() -> None:
        portal.call(_answer(1))

    with pytest.raises(WrongThread, match=r"escrowmq\.aio"):
        portal.call(inner())


def test_closing_ends_calls_that_would_wait_for_ever(portal: Portal) -> None:
    started = threading.Event()
    seen: list[BaseException] = []

    async def stuck() -> None:
        started.set()
        await asyncio.get_running_loop().create_future()

    def work() -> None:
        try:
            portal.call(stuck())
        except ClientClosed as error:
            seen.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert started.wait(DEADLINE_S)
    portal.close()
    thread.join(DEADLINE_S)
    assert len(seen) == 1
    with pytest.raises(ClientClosed):
        portal.call(_answer(1))
    portal.close()


@pytest.mark.parametrize("makes_loop", [asyncio.new_event_loop, greenlets.new_event_loop])
def test_a_call_that_the_end_overtakes_before_its_first_step_is_answered(
    monkeypatch: pytest.MonkeyPatch, makes_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    monkeypatch.setattr(greenlets, "new_event_loop", makes_loop)
    portal = Portal()
    is_held, release = threading.Event(), threading.Event()
    outcomes: list[BaseException] = []

    def hold() -> None:
        is_held.set()
        release.wait(DEADLINE_S)

    def work() -> None:
        try:
            portal.call(_answer(1))
        except ClientClosed as error:
            outcomes.append(error)

    portal.post(hold)
    assert is_held.wait(DEADLINE_S)
    caller = threading.Thread(target=work)
    caller.start()
    while not portal._is_woken:  # the loop is asked to take the call, and is then told to stop
        caller.join(0.001)
    portal._loop.call_soon_threadsafe(portal._loop.stop)
    release.set()
    caller.join(DEADLINE_S)
    assert len(outcomes) == 1


def test_calls_that_race_with_the_end_are_all_answered() -> None:
    for _ in range(30):
        portal = Portal()
        outcomes: list[object] = []

        def work(portal: Portal = portal, outcomes: list[object] = outcomes) -> None:
            try:
                while True:
                    portal.call(_answer(1))
            except ClientClosed as error:
                outcomes.append(error)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        portal.call(_answer(1))
        portal.close()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert len(outcomes) == 4


def test_a_call_behind_one_that_finds_the_loop_closed_is_answered_with_it() -> None:
    portal = Portal()
    portal.close()
    first, second = portals._Call(_answer(1)), portals._Call(_answer(2))
    # Both came when the portal was open still, and were passed by its end on their way here: the
    # first is about to wake the loop, on which the second relies.
    portal._calls.extend([first, second])
    portal._is_woken = True
    portal._wake()
    for call in (first, second):
        assert isinstance(call.error, ClientClosed)
    late = portals._Call(_answer(3))
    with pytest.raises(ClientClosed):
        portal._start_call(late).result()


def test_the_process_shares_one_thread_until_its_last_user_is_gone() -> None:
    first, second = portals.acquire_portal(), portals.acquire_portal()
    assert first is second
    portals.release_portal(first)
    assert second.call(_answer(1)) == 1
    portals.release_portal(second)
    with pytest.raises(ClientClosed):
        second.call(_answer(1))
    third = portals.acquire_portal()
    assert third is not first
    portals.release_portal(third)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # that is what is tested
def test_a_forked_child_is_told_so_and_can_start_anew() -> None:
    portal = portals.acquire_portal()
    assert portal.call(_answer(1)) == 1
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # only what needs no lock of the parent's threads
        outcome = b"nothing"
        try:
            portal.call(_answer(1))
        except ClientForked:
            own = portals.acquire_portal()
            outcome = b"refused, then %d" % own.call(_answer(7))
        os.write(write, outcome)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        assert pipe.read() == b"refused, then 7"
    os.waitpid(child, 0)
    assert portal.call(_answer(2)) == 2
    portals.release_portal(portal)


# -- calls that need no task ---------------------------------------------------------------------


def never() -> Coroutine[Any, Any, int]:
    raise AssertionError("the call began at once")


def test_what_begins_at_once_needs_no_coroutine(portal: Portal) -> None:
    threads: list[threading.Thread] = []

    def begin(finish: FinishCallback[int]) -> bool:
        threads.append(threading.current_thread())
        finish(5)
        return True

    assert portal.call_without_task(begin, never) == 5
    assert threads[0].name == "escrowmq"
    assert not portal.running


def test_what_cannot_begin_at_once_is_awaited(portal: Portal) -> None:
    assert portal.call_without_task(lambda finish: False, lambda: _answer(6)) == 6


def test_what_was_begun_may_fail_or_go_on(portal: Portal) -> None:
    def fail(finish: FinishCallback[int]) -> bool:
        finish(None, KeyError("planted"))
        return True

    def raises(finish: FinishCallback[int]) -> bool:
        raise KeyError("planted")

    def goes_on(finish: FinishCallback[int]) -> bool:
        asyncio.get_running_loop().call_soon(finish, None, None, lambda: _answer(7))
        return True

    for begin in (fail, raises):
        with pytest.raises(KeyError, match="planted"):
            portal.call_without_task(begin, never)
    assert portal.call_without_task(goes_on, never) == 7
    turned = threading.Event()
    portal.post(turned.set)  # the caller may be woken before the loop has put the call away
    assert turned.wait(DEADLINE_S)
    assert not portal.running


def test_what_was_begun_and_never_ends_is_told_of_the_end(portal: Portal) -> None:
    finishes: list[FinishCallback[int]] = []
    failures: list[BaseException] = []
    is_begun = threading.Event()

    def begin(finish: FinishCallback[int]) -> bool:
        finishes.append(finish)
        is_begun.set()
        return True

    def call() -> None:
        try:
            portal.call_without_task(begin, never)
        except ClientClosed as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert is_begun.wait(DEADLINE_S)
    portal.close()
    thread.join(DEADLINE_S)
    assert len(failures) == 1
    finishes[0](8)  # too late, and harmless
    finishes[0](None, None, lambda: _answer(9))
