"""Sends ENDs in the background; no caller waits for the broker's answer."""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

from escrowmq.client import portal
from escrowmq.client.core.end_request import Half
from escrowmq.client.core.sending import Outcome
from escrowmq.client.interceptors import Ends
from escrowmq.client.portal import GoOn
from escrowmq.errors import EscrowMQError

if TYPE_CHECKING:
    from escrowmq.client.transaction_owner import TransactionOwner

_all: weakref.WeakSet[UnconfirmedEnds] = weakref.WeakSet()


class UnconfirmedEnds:
    """The ENDs of one producer that are not confirmed yet."""

    def __init__(self) -> None:
        self._futures: set[asyncio.Future[None]] = set()
        _all.add(self)

    def add(self, future: asyncio.Future[None]) -> asyncio.Future[None]:
        """Add an END. Its future is done when the broker has confirmed the END, or it has
        failed."""
        self._futures.add(future)
        future.add_done_callback(self._futures.discard)
        return future

    def on_running_loop(self) -> list[asyncio.Future[None]]:
        """Return the futures of unconfirmed ENDs that belong to the running event loop."""
        loop = asyncio.get_running_loop()
        return [future for future in self._futures if future.get_loop() is loop]

    async def wait_for_all(self) -> None:
        """Wait for all ENDs that were begun so far; each has its own timeout."""
        await _wait_for(self.on_running_loop())


def wait_for_blocking_ends() -> None:
    """Wait for the ENDs of all blocking producers of this process; for tests, so that brokers have
    received everything. Does nothing on an event loop, which it would block."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return
    with contextlib.suppress(EscrowMQError):  # the last client closed meanwhile
        portal.call_if_open(_wait_for_ends)


async def _wait_for_ends() -> None:
    await _wait_for([future for each in list(_all) for future in each.on_running_loop()])


async def _wait_for(future: list[asyncio.Future[None]]) -> None:
    if future:
        await asyncio.wait(future)


OnEndResult = Callable[[EscrowMQError | None], None]
"""Called once, with the result of the END: None, or the error."""


def send_end_in_background(
    owner: TransactionOwner,
    half: Half,
    outcome: Outcome,
    *,
    count: int,
    ends: Ends,
    heard: OnEndResult,
) -> asyncio.Future[None]:
    """Send an END to a broker, without a task while only its answer must be awaited. The future is
    done after `heard` was called; `flush` and closing the producer wait for it."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_result(
        result: None,  # noqa: ARG001 - there is none
        error: BaseException | None = None,
        go_on: GoOn[None] | None = None,
    ) -> None:
        if future.done():
            return  # the client was closed meanwhile
        if go_on is not None:
            _continue_in_task(owner, go_on, heard, future)
            return
        assert error is None or isinstance(error, EscrowMQError), error
        heard(error)
        future.set_result(None)

    if not owner.settler.try_settle(half, outcome, count=count, finish=on_result):
        _continue_in_task(
            owner,
            lambda: owner.settler.settle(half, outcome, count=count, ends=ends),
            heard,
            future,
        )
    return future if future.done() else owner.track_end(future)


def _continue_in_task(
    owner: TransactionOwner, go_on: GoOn[None], heard: OnEndResult, future: asyncio.Future[None]
) -> None:
    try:
        owner.instance.spawn(_continue_and_report(go_on, heard, future))
    except EscrowMQError as error:  # the producer is closed
        heard(error)
        future.set_result(None)


async def _continue_and_report(
    go_on: GoOn[None], heard: OnEndResult, future: asyncio.Future[None]
) -> None:
    try:
        await go_on()
    except EscrowMQError as error:
        heard(error)
    else:
        heard(None)
    finally:
        if not future.done():
            future.set_result(None)
