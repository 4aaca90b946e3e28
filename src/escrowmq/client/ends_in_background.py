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

_all: weakref.WeakSet[EndsUnderWay] = weakref.WeakSet()


class EndsUnderWay:
    """The ENDs of one producer that are not confirmed yet."""

    def __init__(self) -> None:
        self._told: set[asyncio.Future[None]] = set()
        _all.add(self)

    def keep(self, told: asyncio.Future[None]) -> asyncio.Future[None]:
        """Add an END. Its future is done when the broker has confirmed the END, or it has
        failed."""
        self._told.add(told)
        told.add_done_callback(self._told.discard)
        return told

    def here(self) -> list[asyncio.Future[None]]:
        """Return the futures of unconfirmed ENDs that belong to the running event loop."""
        loop = asyncio.get_running_loop()
        return [told for told in self._told if told.get_loop() is loop]

    async def wait(self) -> None:
        """Wait for all ENDs that were begun so far; each has its own timeout."""
        await _wait(self.here())


def wait_for_plain_ones() -> None:
    """Wait for the ENDs of all blocking producers of this process; for tests, so that brokers have
    received everything. Does nothing on an event loop, which it would block."""
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return
    with contextlib.suppress(EscrowMQError):  # the last client closed meanwhile
        portal.call_if_open(_wait_for_all)


async def _wait_for_all() -> None:
    await _wait([told for each in list(_all) for told in each.here()])


async def _wait(told: list[asyncio.Future[None]]) -> None:
    if told:
        await asyncio.wait(told)


Heard = Callable[[EscrowMQError | None], None]
"""Called once, with the result of the END: None, or the error."""


def end_in_background(
    owner: TransactionOwner,
    half: Half,
    outcome: Outcome,
    *,
    count: int,
    ends: Ends,
    heard: Heard,
) -> asyncio.Future[None]:
    """Send an END to a broker, without a task while only its answer must be awaited. The future is
    done after `heard` was called; `flush` and closing the producer wait for it."""
    told: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(
        result: None,  # noqa: ARG001 - there is none
        error: BaseException | None = None,
        go_on: GoOn[None] | None = None,
    ) -> None:
        if told.done():
            return  # the client was closed meanwhile
        if go_on is not None:
            _spawn(owner, go_on, heard, told)
            return
        assert error is None or isinstance(error, EscrowMQError), error
        heard(error)
        told.set_result(None)

    if not owner.settler.begin(half, outcome, count=count, finish=finish):
        _spawn(
            owner,
            lambda: owner.settler.settle(half, outcome, count=count, ends=ends),
            heard,
            told,
        )
    return told if told.done() else owner.keep_end(told)


def _spawn(
    owner: TransactionOwner, go_on: GoOn[None], heard: Heard, told: asyncio.Future[None]
) -> None:
    try:
        owner.instance.spawn(_report_result(go_on, heard, told))
    except EscrowMQError as error:  # the producer is closed
        heard(error)
        told.set_result(None)


async def _report_result(go_on: GoOn[None], heard: Heard, told: asyncio.Future[None]) -> None:
    try:
        await go_on()
    except EscrowMQError as error:
        heard(error)
    else:
        heard(None)
    finally:
        if not told.done():
            told.set_result(None)
