"""How a plain face is made of an asyncio one: method by method, with types and docstrings."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from escrowmq.client.portal import Portal, acquire, release
from escrowmq.errors import ClientClosed, ClientForked

_log = logging.getLogger(__name__)

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T")


class Face(Generic[E]):
    """A plain object in front of an asyncio one."""

    def __init__(self, portal: Portal, inner: E) -> None:
        self.portal = portal
        self.inner = inner


class Closable(Protocol):
    """An asyncio client."""

    async def close(self) -> None:
        """End."""


C = TypeVar("C", bound=Closable)


class Served(Generic[C]):
    """A plain client that has a share in the process's event loop until it is closed."""

    _portal: Portal
    _inner: C
    _is_closed: bool

    def _join(self) -> Portal:
        """Take a share in the process's event loop."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            _log.warning(
                "a plain %s is made inside a running event loop, which each of its calls will hold "
                "up; use escrowmq.aio there", type(self).__name__,
            )  # fmt: skip
        portal = acquire()
        self._shares = [portal]
        return portal

    def close(self) -> None:
        """End: what is under way fails, brokers are told. Calling it again does nothing; after an
        interrupt, it does the rest."""
        if not self._is_closed:
            self._leave()

    def _leave(self) -> None:
        """Close what stands behind it, and give up its share."""
        try:
            with contextlib.suppress(ClientClosed, ClientForked):
                self._portal.call(self._inner.close())
        except Exception:
            self._give_up()
            raise
        self._give_up()

    def _give_up(self) -> None:
        self._is_closed = True
        # Several threads may close at once; the one that takes the share gives it back.
        with contextlib.suppress(IndexError):
            release(self._shares.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def engine_of(client: object) -> Any:  # noqa: ANN401 - a client of any kind
    """The asyncio client behind a plain one; any other object is returned as it is."""
    return client._inner if isinstance(client, Served) else client  # noqa: SLF001 - its own module


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
