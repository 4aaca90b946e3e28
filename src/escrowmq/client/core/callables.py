"""Finds out what calling a user's function does: run its code, or only make a coroutine or a
generator; and whether it takes what it would be given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
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


def takes_one_argument(function: Callable[..., Any]) -> bool:
    """Whether a function can be called with one argument, as far as it says."""
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # written in C, and says nothing about itself
        return True
    return True


def _unwrap_callable(function: object) -> tuple[Any, Any]:
    """Return the function inside a `partial`, and the `__call__` method of a callable object."""
    while isinstance(function, functools.partial):
        function = function.func
    return function, getattr(function, "__call__", None)  # noqa: B004
