"""Sets up a server process: limits, logs, signals, the ready line."""

from __future__ import annotations

import asyncio
import faulthandler
import gc
import logging
import os
import resource
import signal
import socket
import sys
from collections.abc import Awaitable, Callable

import uvloop

_GC_YOUNG = 50_000
"""The number of allocations between two collections of young objects. Serving requests creates no
reference cycles; with Python's default of 700, collections cost several per cent of a loaded
broker's time."""


_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_MEANINGLESS = (signal.SIGUSR1, signal.SIGUSR2)

_log = logging.getLogger(__name__)


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum that the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def print_ready_line(**addresses: str) -> None:
    """Print the ready line with the addresses of the open ports, and report to systemd that the
    process is ready."""
    text = " ".join(f"{name}={address}" for name, address in addresses.items())
    print(f"escrowmq ready {text}", flush=True)  # noqa: T201 - the contract's one line
    _notify_systemd(f"READY=1\nSTATUS={text}")


def _notify_systemd(state: str) -> None:
    """Notify systemd, if it has started this process with Type=notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # a name that is no file
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)
    except OSError as error:
        _log.warning("systemd (NOTIFY_SOCKET) cannot be notified: %s", error)


def run_until_signal(main: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Run until a signal sets the event for which `main` waits: SIGTERM, SIGINT or SIGHUP, as in
    Java. SIGQUIT prints a stack trace of every thread, also as in Java; other signals are
    ignored."""

    async def run_main() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, _handle_stop_signal, number, stop)
        for number in _MEANINGLESS:
            loop.add_signal_handler(number, _ignore_signal, number)
        faulthandler.register(signal.SIGQUIT, file=sys.stderr, all_threads=True)
        await main(stop)

    raise_file_limit()
    gc.set_threshold(_GC_YOUNG, 20, 50)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run_main())
    return 0


def _handle_stop_signal(number: signal.Signals, stop: asyncio.Event) -> None:
    if not stop.is_set():
        _log.info("%s: stopping", number.name)
        _notify_systemd("STOPPING=1")
    stop.set()


def _ignore_signal(number: signal.Signals) -> None:
    _log.warning("%s is ignored; SIGTERM stops the server", number.name)


def freeze_loaded_objects() -> None:
    """Exclude existing objects from garbage collections. Call this once everything is loaded."""
    gc.collect()
    gc.freeze()
