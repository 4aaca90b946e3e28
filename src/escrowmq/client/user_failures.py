"""What users' code raised: its own failure, or the end of what runs it."""

from __future__ import annotations

import asyncio
import threading


def is_failure(error: BaseException) -> bool:
    """Whether this is a failure of the users' code that raised it, to be logged and lived with.

    A CancelledError is one when nobody cancelled the task that it was raised in: something that
    the code waited for was cancelled, a pool's future for example. An interrupt and SystemExit end
    the program in its main thread, and no client's thread anywhere else.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or not task.cancelling()
    if isinstance(error, KeyboardInterrupt | SystemExit):
        return threading.current_thread() is not threading.main_thread()
    return not isinstance(error, GeneratorExit)
