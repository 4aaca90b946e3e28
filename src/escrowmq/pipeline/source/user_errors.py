"""Shortens errors for Spark's users.

PySpark puts a whole Python traceback into the message of its own error, before the line that says
what is wrong: forty lines about how the code noticed that a topic is missing."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

M = TypeVar("M", bound=Callable[..., Any])


def shorten_traceback(method: M) -> M:
    """Wrap a method called by Spark: our own errors leave it without their traceback, which is
    logged (debug). Other errors keep theirs."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def items(*given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method
            try:
                yield from method(*given, **named)
            except EscrowMQError as error:
                raise _without_traceback(error) from None

        return items  # type: ignore[return-value]

    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method
        try:
            return method(*given, **named)
        except EscrowMQError as error:
            raise _without_traceback(error) from None

    return call  # type: ignore[return-value]


def _without_traceback(error: EscrowMQError) -> EscrowMQError:
    _log.debug("error reported to Spark: %s", error, exc_info=error)
    return error.with_traceback(None)
