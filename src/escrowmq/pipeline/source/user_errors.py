"""Errors as a Spark user should see them.

PySpark puts a whole Python traceback into the message of its own error, behind a line of its own
and in front of what is wrong: forty lines of how we came to know that a topic is gone."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from escrowmq.errors import EscrowMQError

_log = logging.getLogger(__name__)

M = TypeVar("M", bound=Callable[..., Any])


def briefly(method: M) -> M:
    """A method that Spark calls: our errors leave it without the way that they came, which goes to
    the log (debug). What is none of ours keeps its traceback."""
    if inspect.isgeneratorfunction(method):

        @functools.wraps(method)
        def items(*given: Any, **named: Any) -> Iterator[Any]:  # noqa: ANN401 - as the method
            try:
                yield from method(*given, **named)
            except EscrowMQError as error:
                raise _short(error) from None

        return items  # type: ignore[return-value]

    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:  # noqa: ANN401 - as the method
        try:
            return method(*given, **named)
        except EscrowMQError as error:
            raise _short(error) from None

    return call  # type: ignore[return-value]


def _short(error: EscrowMQError) -> EscrowMQError:
    _log.debug("Spark is told: %s", error, exc_info=error)
    return error.with_traceback(None)
