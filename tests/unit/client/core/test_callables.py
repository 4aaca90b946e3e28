from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator

import pytest

from escrowmq.client.core.callables import has_yield, is_coroutine


async def awaited(message: object) -> None: ...


def plain(message: object) -> None: ...


def generator(message: object) -> Iterator[None]:
    yield


async def async_generator(message: object) -> AsyncIterator[None]:
    yield


class Awaited:
    async def __call__(self, message: object) -> None: ...


class Plain:
    def __call__(self, message: object) -> None: ...


class Generator:
    def __call__(self, message: object) -> Iterator[None]:
        yield


@pytest.mark.parametrize("function", [awaited, Awaited(), functools.partial(awaited, 1)])
def test_a_coroutine_function_is_one_in_each_of_its_forms(function: object) -> None:
    assert is_coroutine(function)
    assert is_coroutine(functools.partial(Awaited(), 1))
    assert not has_yield(function)


@pytest.mark.parametrize("function", [generator, async_generator, Generator()])
def test_a_function_with_a_yield_does_nothing_when_called(function: object) -> None:
    assert has_yield(function)
    assert not is_coroutine(function)


@pytest.mark.parametrize("function", [plain, Plain(), functools.partial(plain, 1), len, None])
def test_others_do_their_work_when_called(function: object) -> None:
    assert not is_coroutine(function)
    assert not has_yield(function)
