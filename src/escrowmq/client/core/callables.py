"""Finds out whether calling a user's function runs its code, or only makes a coroutine or a
generator."""

from __future__ import annotations

import functools
import inspect
from typing import Any


def is_coroutine(function: object) -> bool:
    """Whether a call returns a coroutine, which runs on the event loop."""
    return any(inspect.iscoroutinefunction(each) for each in _unwrap_callable(function))


def has_yield(function: object) -> bool:
    """Whether a call returns a generator, so that none of the function's code runs."""
    return any(
        inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each)
        for each in _unwrap_callable(function)
    )


def _unwrap_callable(function: object) -> tuple[Any, Any]:
    """Return the function inside a `partial`, and the `__call__` method of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(function, "__call__", None)  # noqa: B004
