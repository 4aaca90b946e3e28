"""Tells failures of users' code from the end of the task or program."""

from __future__ import annotations

import asyncio
import threading


def is_user_failure(error: BaseException) -> bool:
    """Whether this exception is a failure of users' code, to be logged before work continues.

    A CancelledError is one if the task in which it was raised was not cancelled: then something
    that the code awaited was cancelled, for example a pool's future. An interrupt and SystemExit
    end the program in its main thread, but no client's thread elsewhere."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, GeneratorExit)
