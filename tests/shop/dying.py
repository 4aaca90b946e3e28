"""A service of the shop that dies behind a step: `python -m tests.shop.dying STEP orders ...`."""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final

from examples.shop import __main__ as shop
from examples.shop import tables

from escrowmq.client.handler_runs import HandlerRunner
from escrowmq.client.outbox_messages import MarkedMessages
from tests.outbox.crashes import hear_and_die

ORDER_STEPS: Final = ("begun", "marker", "halves", "left", "commit", "end")
"""What was done last: the request was read; the order and the marker were written; the event was
stored, invisible; COMMIT was about to go; it was done; the broker was told."""

MAIL_STEPS: Final = ("taken", "mailed")
"""The event was taken; the mail was committed and the event not acknowledged."""

PACK_STEPS: Final = ("taken", "packed")
"""The event was taken; the parcel was packed and the event not acknowledged (DyingPacker.java)."""


def die() -> None:
    """At once, as with kill -9."""
    os.kill(os.getpid(), signal.SIGKILL)


def arm(step: str) -> None:
    """Let this process die behind a step."""
    _before(MarkedMessages, "wait_until_stored", step == "marker")
    _before(MarkedMessages, "report_commit", step == "commit")
    _before(tables.Mail, "__init__", step == "taken")
    _before(HandlerRunner, "_settle", step == "mailed")
    _behind(MarkedMessages, "__init__", step == "begun")
    _behind(MarkedMessages, "leave_to_marker", step == "left")
    _behind_awaited(MarkedMessages, "send", step == "halves")
    if step == "end":
        hear_and_die(die)


def _before(kind: type, name: str, is_so: bool) -> None:
    if is_so:
        setattr(kind, name, lambda *given, **more: die())


def _behind(kind: type, name: str, is_so: bool) -> None:
    known = getattr(kind, name)

    def call(*given: Any, **more: Any) -> None:
        known(*given, **more)
        die()

    if is_so:
        setattr(kind, name, call)


def _behind_awaited(kind: type, name: str, is_so: bool) -> None:
    known = getattr(kind, name)

    async def call(*given: Any, **more: Any) -> None:
        await known(*given, **more)
        die()

    if is_so:
        setattr(kind, name, call)


if __name__ == "__main__":
    arm(sys.argv.pop(1))
    shop.main()
