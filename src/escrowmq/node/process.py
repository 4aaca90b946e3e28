"""What every server process does: limits, logs, signals, the ready line."""

from __future__ import annotations

import asyncio
import gc
import logging
import resource
import signal
import sys
from collections.abc import Awaitable, Callable

import uvloop

_log = logging.getLogger(__name__)

_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT)
_PASSED_OVER = (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Terminals that are closed and log rotation send these; by default they would kill the process
without a clean end."""

_GC_YOUNG = 50_000
"""Allocations between young collections. The hot path makes no cycles; the default of 700 costs
several per cent of the time of a loaded broker."""


def raise_file_limit() -> None:
    """Use as many files as the system lets this process use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def log_to_stderr(level: str) -> None:
    """One line an event: time, level, room, text."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # What operators did is on record however little else is wanted.
    logging.getLogger("escrowmq.audit").setLevel(logging.INFO)


def announce(**doors: str) -> None:
    """The ready line: every door is open."""
    text = " ".join(f"{name}={address}" for name, address in doors.items())
    print(f"escrowmq ready {text}", flush=True)  # noqa: T201 - the contract's one line


def run(main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run until SIGTERM, SIGINT or SIGQUIT sets the event that `main` waits for."""

    async def supervised() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, stop.set)
        for number in _PASSED_OVER:
            loop.add_signal_handler(number, _pass_over, number)
        await main(stop)

    raise_file_limit()
    gc.set_threshold(_GC_YOUNG, 20, 50)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(supervised())
    return 0


def _pass_over(number: signal.Signals) -> None:
    _log.warning(
        "%s is passed over: settings are changed by `escrowmq broker set` or with a restart, "
        "certificates and accounts are read when their files change; SIGTERM ends the process",
        number.name,
    )


def settle_memory() -> None:
    """Call once everything is loaded: what is there now is not looked at by collections."""
    gc.collect()
    gc.freeze()
