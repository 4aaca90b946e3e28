"""How a plain face is made of an asyncio one: method by method, with types and docstrings."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from escrowmq.client.portal import Portal

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T")


class Face(Generic[E]):
    """A plain object in front of an asyncio one."""

    def __init__(self, portal: Portal, inner: E) -> None:
        self.portal = portal
        self.inner = inner


def plain(
    method: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[E], P], T]:
    """The same method, which waits for its result."""

    @functools.wraps(method)
    def call(face: Face[E], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face.portal.call(method(face.inner, *args, **kwargs))

    return call


def plain_iterator(
    method: Callable[Concatenate[E, P], AsyncIterator[T]],
) -> Callable[Concatenate[Face[E], P], Iterator[T]]:
    """The same iterator, which waits for each item that is not here yet."""

    @functools.wraps(method)
    def call(face: Face[E], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(face.inner, *args, **kwargs)
        while True:
            try:
                item = face.portal.call(_next(found))
            except StopAsyncIteration:
                return
            yield item

    return call


async def _next(found: AsyncIterator[T]) -> T:
    return await anext(found)
