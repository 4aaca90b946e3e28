"""Makes a blocking class from an asyncio one, method by method, and copies types and docstrings."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from types import FunctionType, TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar

from escrowmq.client.portal import Portal, acquire_portal, release_portal
from escrowmq.errors import ClientClosed, ClientForked, EscrowMQError

_log = logging.getLogger(__name__)

E = TypeVar("E")
P = ParamSpec("P")
T = TypeVar("T")
K = TypeVar("K", bound=type)

_SPECIAL = frozenset({"__init__", "__enter__", "__exit__", "__next__"})
"""Special methods that users call although their names begin with an underscore."""


def shorten_traceback(method: Callable[P, T]) -> Callable[P, T]:
    """Wrap a method so that tracebacks of our own errors start there: they show the caller's line
    and this method only. Other errors (a bug of ours, or an interceptor's own) keep all their
    frames."""

    @functools.wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except EscrowMQError as error:
            raise error.with_traceback(None)  # noqa: B904 - itself, with the cause that it has

    return _with_name_of(method, call)


def _with_name_of(method: Callable[..., object], call: Callable[P, T]) -> Callable[P, T]:
    """Rename the function so that tracebacks show the method's name."""
    assert isinstance(call, FunctionType)
    call.__code__ = call.__code__.replace(co_name=method.__name__, co_qualname=method.__qualname__)
    return call


def shorten_tracebacks(*, but: Collection[str] = ()) -> Callable[[K], K]:
    """Return a decorator that wraps a class's public methods with `shorten_traceback`. `but` names
    methods that shorten tracebacks themselves: they are called for each message and should cost no
    extra call."""

    def decorate(kind: K) -> K:
        for name, found in list(vars(kind).items()):
            is_meant = name in _SPECIAL or not name.startswith("_")
            if is_meant and isinstance(found, FunctionType) and name not in but:
                setattr(kind, name, shorten_traceback(found))
        return kind

    return decorate


class Face(Generic[E]):
    """Base of blocking objects; each wraps an asyncio object."""

    def __init__(self, portal: Portal, inner: E) -> None:
        self.portal = portal
        self.inner = inner


class Closable(Protocol):
    """An asyncio client that can be closed."""

    async def close(self) -> None:
        """Close the client."""


C = TypeVar("C", bound=Closable)


@shorten_tracebacks()
class BlockingClient(Generic[C]):
    """A blocking client that shares the process's event loop until it is closed."""

    _portal: Portal
    _inner: C
    _is_closed: bool

    def _join_event_loop(self) -> Portal:
        """Start to use the process's shared event loop; return its portal."""
        with contextlib.suppress(RuntimeError):
            asyncio.get_running_loop()
            _log.warning(
                "a blocking %s was made inside a running event loop; each of its calls will "
                    "block the loop. Use escrowmq.aio there",
                type(self).__name__,
            )  # fmt: skip
        portal = acquire_portal()
        self._portals = [portal]
        return portal

    def close(self) -> None:
        """Close the client: calls in flight fail, brokers are informed. Calling it again does
        nothing, or completes a call that was interrupted."""
        if not self._is_closed:
            self._close_and_release()

    def _close_and_release(self) -> None:
        """Close the asyncio client, and stop using the shared event loop."""
        try:
            with contextlib.suppress(ClientClosed, ClientForked):
                self._portal.call(self._inner.close())
        except Exception:
            self._release_event_loop()
            raise
        self._release_event_loop()

    def _release_event_loop(self) -> None:
        self._is_closed = True
        # Several threads may close concurrently; only the one that takes the share releases it.
        with contextlib.suppress(IndexError):
            release_portal(self._portals.pop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def release_killed_client(client: object) -> None:
    """Release the event loop of a client that a test has killed; do nothing for any other
    object."""
    if isinstance(client, BlockingClient):
        client._release_event_loop()  # noqa: SLF001 - its own module


def asyncio_client_of(client: object) -> Any:  # noqa: ANN401 - a client of any kind
    """Return the asyncio client inside a blocking one; any other object is returned unchanged."""
    return client._inner if isinstance(client, BlockingClient) else client  # noqa: SLF001 - its own module


def blocking_method(
    method: Callable[Concatenate[E, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[E], P], T]:
    """Make a blocking method from a coroutine method; it waits for the result."""

    @functools.wraps(method)
    def call(face: Face[E], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return face.portal.call(method(face.inner, *args, **kwargs))

    return shorten_traceback(call)


def blocking_iterator(
    method: Callable[Concatenate[E, P], AsyncIterator[T]],
) -> Callable[Concatenate[Face[E], P], Iterator[T]]:
    """Make a blocking iterator method from an asynchronous one; it waits for each item."""

    @functools.wraps(method)
    def call(face: Face[E], /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        found = method(face.inner, *args, **kwargs)
        while True:
            try:
                item = face.portal.call(_next_item(found))
            except StopAsyncIteration:
                return
            except EscrowMQError as error:
                raise error.with_traceback(None)  # noqa: B904 - as `plainly` does
            yield item

    return _with_name_of(method, call)


async def _next_item(found: AsyncIterator[T]) -> T:
    return await anext(found)
