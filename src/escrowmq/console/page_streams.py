"""Pages that update themselves. A page with viewers is rendered every two seconds, once for all of
them. When it has changed, it is sent to each viewer as an event for a browser's EventSource.

Measured with twenty windows on one page: benchmarks/console_viewers.py, docs/console.md."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from escrowmq.console.rings import STEP_S

MEDIA_TYPE: Final = "text/event-stream"
STREAMS_MAX: Final = 64
"""The most open streams. A page whose stream is refused polls by itself."""

STREAMS_OF_SESSION_MAX: Final = 4
"""The most open streams of a session. Browsers open at most six connections to a host, and some
must remain for what the user clicks."""

_CHECK_S: Final = 0.25
"""Interval in seconds at which a stream checks whether the server is stopping."""

_ALIVE_EVERY: Final = 5
"""The number of renderings without a change after which something is sent, so that no proxy closes
a silent connection."""

_OVER: Final = b"event: over\ndata:\n\n"
_LOST: Final = b"event: lost\ndata:\n\n"
_AS_BEFORE: Final = b": as before\n\n"

Draw = Callable[[], Awaitable[Response]]


class _FollowedPage:
    """A page with viewers, which is rendered repeatedly, once for all of them."""

    def __init__(self) -> None:
        self.text: str | None = None
        """The latest rendering; None if it failed."""
        self.followers_count = 0
        self.task: asyncio.Task[None] | None = None
        self._turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def wait_for_next(self) -> bool:
        """Wait for the next rendering. Return False if the stream has ended."""
        return await asyncio.shield(self._turn)

    def publish(self) -> None:
        """Publish a new rendering to all viewers."""
        done, self._turn = self._turn, asyncio.get_running_loop().create_future()
        done.set_result(True)

    def end_stream(self) -> None:
        """End the stream for all viewers, also for one that still receives the last rendering."""
        self._turn.set_result(False)


class _StreamSlot:
    """The right to one open stream. It counts from when it is granted, not from the stream's first
    event: otherwise simultaneous requests could all get the last one."""

    def __init__(self, taken: Counter[str], session: str) -> None:
        self._taken = taken
        self._session = session
        self._is_left = False
        taken[session] += 1

    def release(self) -> None:
        """Give the right back. Do nothing if that was done before."""
        if self._is_left:
            return
        self._is_left = True
        self._taken[self._session] -= 1
        if not self._taken[self._session]:
            del self._taken[self._session]


class _SlotResponse(StreamingResponse):
    """A streamed response that gives back its right to a stream when it ends, even if the browser
    is gone before the first event."""

    def __init__(self, events: AsyncIterator[bytes], place: _StreamSlot) -> None:
        super().__init__(events, media_type=MEDIA_TYPE)
        self._place = place

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._place.release()


class PageStreams:
    """The open streams of all browsers, and the pages with viewers."""

    def __init__(self, is_ending: Callable[[], bool], *, step_s: float = STEP_S) -> None:
        self._is_ending = is_ending
        self._step_s = step_s
        self._open: Counter[str] = Counter()
        self._followed: dict[Hashable, _FollowedPage] = {}

    @property
    def count(self) -> int:
        """Number of open streams."""
        return self._open.total()

    def open_stream(
        self, page: Hashable, draw: Draw, *, session: str, is_over: Callable[[], bool],
        finish: Callable[[str], str],
    ) -> Response:  # fmt: skip
        """Open a stream of a page, or refuse it: then the page polls by itself.

        `draw` renders the page for all viewers, `finish` adds what belongs to one session."""
        if self.count >= STREAMS_MAX or self._open[session] >= STREAMS_OF_SESSION_MAX:
            return Response("too many pages are followed\n", 503, media_type="text/plain")
        place = _StreamSlot(self._open, session)
        return _SlotResponse(self._stream_events(page, draw, place, is_over, finish), place)

    async def _stream_events(
        self, page: Hashable, draw: Draw, place: _StreamSlot, is_over: Callable[[], bool],
        finish: Callable[[str], str],
    ) -> AsyncIterator[bytes]:  # fmt: skip
        followed = self._add_viewer(page, draw)
        try:
            yield _AS_BEFORE  # so that the browser knows that it is connected
            sent: str | None = None
            silent_count = 0
            while await followed.wait_for_next():
                if is_over():
                    yield _OVER
                    return
                silent_count += 1
                if followed.text is None:
                    yield _LOST
                elif followed.text != sent:
                    sent, silent_count = followed.text, 0
                    yield format_event(finish(sent))
                elif silent_count % _ALIVE_EVERY == 0:
                    yield _AS_BEFORE
        finally:
            place.release()
            self._remove_viewer(page, followed)

    def _add_viewer(self, page: Hashable, draw: Draw) -> _FollowedPage:
        followed = self._followed.get(page)
        if followed is None:
            followed = self._followed[page] = _FollowedPage()
            followed.task = asyncio.ensure_future(self._render_repeatedly(followed, draw))
        followed.followers_count += 1
        return followed

    def _remove_viewer(self, page: Hashable, followed: _FollowedPage) -> None:
        followed.followers_count -= 1
        if not followed.followers_count:
            assert followed.task is not None
            followed.task.cancel()
            del self._followed[page]

    async def _render_repeatedly(self, followed: _FollowedPage, draw: Draw) -> None:
        while await self._wait_for_next():
            answer = await draw()
            followed.text = bytes(answer.body).decode() if answer.status_code == 200 else None
            followed.publish()
        followed.end_stream()

    async def _wait_for_next(self) -> bool:
        """Wait until the next rendering is due; return False if the server stops."""
        left_s = self._step_s
        while left_s > 0 and not self._is_ending():
            await asyncio.sleep(min(left_s, _CHECK_S))
            left_s -= _CHECK_S
        return not self._is_ending()


def format_event(text: str) -> bytes:
    """Format a text as one server-sent event."""
    lines = "".join(f"data: {line}\n" for line in text.splitlines())
    return f"{lines}\n".encode()
