from __future__ import annotations

import asyncio
import threading
from types import ModuleType
from typing import Any, get_type_hints

import pytest

import escrowmq
import escrowmq.aio
from escrowmq.client import workers as workers_module
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.inflight_limits import InflightLimits
from escrowmq.client.producer_settings import MessageFields, ProducerOptions, ProducerSettings
from escrowmq.client.workers import Workers
from escrowmq.errors import EscrowMQError, PermissionDenied, ResponseError, response_error

NAMES_MAX = 24
DEADLINE_S = 60.0


def run(test: Any) -> None:
    asyncio.run(test())


# -- what is public ------------------------------------------------------------------------------


def test_the_public_names_are_a_list_that_is_kept() -> None:
    for name in escrowmq.__all__:
        assert getattr(escrowmq, name) is not None
    seen = {
        name
        for name, value in vars(escrowmq).items()
        if name[0] != "_" and not isinstance(value, ModuleType)
    }
    assert seen - {"TYPE_CHECKING", "annotations"} == set(escrowmq.__all__)
    assert len(escrowmq.__all__) <= NAMES_MAX
    assert set(escrowmq.aio.__all__) == set(escrowmq.__all__)
    assert set(escrowmq.__all__) <= set(dir(escrowmq))
    with pytest.raises(AttributeError, match="Nothing"):
        _ = escrowmq.Nothing


def test_both_faces_have_the_same_methods() -> None:
    for name in ("Producer", "Transaction"):
        plain, awaited = getattr(escrowmq, name), getattr(escrowmq.aio, name)
        public = {each for each in vars(plain) if not each.startswith("_")}
        missing = public - set(dir(awaited))
        assert not missing, f"{name}: {missing}"


def test_keywords_are_typed_as_the_structs_that_hold_them() -> None:
    own = {*ProducerOptions.__struct_fields__, *ClientOptions.__struct_fields__} - {"name_servers"}
    assert set(get_type_hints(ProducerSettings)) == own
    fields = {*escrowmq.Message.__struct_fields__} - {"topic", "body"}
    assert set(get_type_hints(MessageFields)) == fields


def test_every_response_code_has_one_exception_and_unknown_ones_the_general() -> None:
    for code, kind in ResponseError.by_code.items():
        error = response_error(code, "remark", address="h:1")
        assert type(error) is kind
        assert (error.code, error.remark, error.address) == (code, "remark", "h:1")
        advice = "; when it is a right that is missing, " if kind is PermissionDenied else ""
        assert str(error).startswith(f"remark (code {code} of h:1){advice}")
    odd = response_error(4711, None, address="h:1")
    assert type(odd) is ResponseError
    assert (odd.code, str(odd)) == (4711, "ResponseError (code 4711 of h:1)")


def test_the_drawn_tree_of_errors_is_true() -> None:
    from escrowmq import errors

    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        front, mark, rest = line.partition("── ")
        if mark:
            drawn.append((len(front) // 4 + 1, rest.split()[0]))
    parents = {0: "EscrowMQError"}
    for depth, name in drawn:
        assert getattr(errors, name).__base__.__name__ == parents[depth - 1], name
        parents[depth] = name
    named = {name for _, name in drawn} | {"EscrowMQError"}
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, EscrowMQError):
            assert name in named or issubclass(kind, ResponseError), f"{name} is not drawn"


# -- back-pressure -------------------------------------------------------------------------------


def test_room_is_given_in_the_order_of_coming() -> None:
    async def go() -> None:
        pressure = InflightLimits(count_max=2, size_max=100)
        assert pressure.try_reserve(60)
        assert not pressure.try_reserve(60), "too many bytes"
        assert pressure.try_reserve(40)
        assert not pressure.try_reserve(0), "too many messages"
        order: list[int] = []

        async def wait(number: int, size: int) -> None:
            await pressure.reserve(size)
            order.append(number)

        tasks = [asyncio.ensure_future(wait(n, size)) for n, size in enumerate((90, 5, 5))]
        await asyncio.sleep(0)
        assert pressure.waiting_count == 3
        pressure.release(40)
        await asyncio.sleep(0)
        assert order == [], "the small ones do not overtake the large one"
        pressure.release(60)
        await asyncio.gather(*tasks[:2])
        assert order == [0, 1]
        tasks[2].cancel()
        await asyncio.gather(tasks[2], return_exceptions=True)
        pressure.release(90)
        pressure.release(5)
        assert pressure.try_reserve(10_000), "what is larger than all the room goes alone"
        assert not pressure.try_reserve(1)

    run(go)


def test_one_that_is_cancelled_in_the_moment_of_its_turn_gives_its_room_back() -> None:
    async def go() -> None:
        pressure = InflightLimits(count_max=1, size_max=100)
        assert pressure.try_reserve(1)
        waiting = asyncio.ensure_future(pressure.reserve(1))
        await asyncio.sleep(0)
        pressure.release(1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert pressure.try_reserve(1)

    run(go)


# -- threads for users' code ---------------------------------------------------------------------


def test_work_runs_on_threads_and_no_more_than_allowed() -> None:
    async def go() -> None:
        workers = Workers(threads_max=2, name="test-worker")
        seen: set[int] = set()

        def work(number: int) -> int:
            seen.add(threading.get_ident())
            if number == 3:
                raise KeyError("planted")
            return number

        done = [workers.run(work, n) for n in range(6)]
        found = await asyncio.gather(*done, return_exceptions=True)
        assert [each for each in found if isinstance(each, int)] == [0, 1, 2, 4, 5]
        assert isinstance(found[3], KeyError)
        assert 1 <= len(seen) <= 2
        assert threading.get_ident() not in seen
        workers.close()

    run(go)


def test_work_that_hangs_can_be_given_up_and_its_thread_ends_afterwards() -> None:
    async def go() -> None:
        workers = Workers(threads_max=1, name="test-hanging")
        release = threading.Event()
        hanging = workers.run(release.wait, DEADLINE_S)
        assert workers.abandon(hanging)
        assert await workers.run(lambda: 7) == 7
        release.set()
        async with asyncio.timeout(DEADLINE_S):
            while sum(each.name == "test-hanging" for each in threading.enumerate()) > 1:
                await workers.run(int)
        assert await workers.run(lambda: 8) == 8
        workers.close()

    run(go)


def test_a_thread_that_hangs_is_replaced_though_more_work_than_threads_came_before() -> None:
    """A thread that took the next work from the queue counted as idle, and work that came after a
    hang waited for it: an operator's message for a busy handler was enough."""

    async def go() -> None:
        workers, release = Workers(threads_max=1, name="test-counted"), threading.Event()
        begun = threading.Event()

        def hang() -> None:
            begun.set()
            release.wait(DEADLINE_S)

        await asyncio.gather(*(workers.run(int) for _ in range(3)))
        hanging = workers.run(hang)
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        assert workers.abandon(hanging)
        async with asyncio.timeout(DEADLINE_S / 10):
            assert await workers.run(lambda: 7) == 7
        release.set()
        workers.close()

    run(go)


def test_work_that_waits_for_a_thread_that_hangs_runs_on_the_one_in_its_place() -> None:
    """It waited until more work came, and if that waited for it, for ever."""

    async def go() -> None:
        workers, release = Workers(threads_max=1, name="test-next"), threading.Event()
        begun = threading.Event()

        def hang() -> None:
            begun.set()
            release.wait(DEADLINE_S)

        hanging = workers.run(hang)
        assert await asyncio.to_thread(begun.wait, DEADLINE_S)
        queued = [workers.run(int, number) for number in range(3)]
        assert workers.abandon(hanging)
        async with asyncio.timeout(DEADLINE_S / 10):
            assert await asyncio.gather(*queued) == [0, 1, 2]
        release.set()
        async with asyncio.timeout(DEADLINE_S):
            while sum(each.name == "test-next" for each in threading.enumerate()) > 1:
                await workers.run(int)
        workers.close()

    run(go)


def test_work_given_up_before_a_thread_took_it_never_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers_module, "ABANDONED_MAX", 0)

    async def go() -> None:
        workers, release = Workers(threads_max=1, name="test-queued"), threading.Event()
        done: list[str] = []
        hanging = workers.run(release.wait, DEADLINE_S)
        assert not workers.abandon(hanging)
        queued = workers.run(done.append, "given up")
        assert not workers.abandon(queued)
        release.set()
        await workers.run(done.append, "wanted")
        assert done == ["wanted"]
        workers.close()

    run(go)


def test_work_that_came_to_its_end_is_not_given_up() -> None:
    async def go() -> None:
        workers = Workers(threads_max=1, name="test-done")
        for _ in range(100):  # more than may be left alone
            done = workers.run(threading.get_ident)
            await done
            assert workers.abandon(done)
        names = [each.name for each in threading.enumerate()]
        assert names.count("test-done") == 1, "no other thread took its place"
        workers.close()

    run(go)


def test_without_a_thread_to_be_had_those_that_are_there_do_the_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def go() -> None:
        workers, release = Workers(threads_max=2, name="test-short"), threading.Event()
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError, match="new thread"):
                await workers.run(int)
        first = workers.run(release.wait, DEADLINE_S)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            second = workers.run(lambda: 2)
        third = workers.run(lambda: 3)  # there are two threads again
        assert (await second, await third) == (2, 3)
        release.set()
        assert await first
        workers.close()

    run(go)


def test_exits_and_stops_of_users_code_become_errors() -> None:
    async def go() -> None:
        workers = Workers(threads_max=1, name="test-exit")
        for raised in (SystemExit(1), StopIteration(), KeyboardInterrupt()):

            def work(raised: BaseException = raised) -> None:
                raise raised

            with pytest.raises(RuntimeError, match=type(raised).__name__):
                await workers.run(work)
        workers.close()

    run(go)
