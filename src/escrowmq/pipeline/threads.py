"""Lets threads of a pool write with Spark."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from pyspark.sql import SparkSession

P = ParamSpec("P")
T = TypeVar("T")


def in_session(spark: SparkSession, work: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function for threads that Spark does not know: Spark looks up Python formats in the
    session of the writing thread, and a new thread has none.

    >>> with ThreadPoolExecutor(4) as pool:
    ...     done = list(pool.map(in_session(spark, write), ["orders", "parcels"]))

    With Spark Connect this is not needed, and does nothing."""

    @functools.wraps(work)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        session: Any = getattr(spark, "_jsparkSession", None)  # PySpark has no public way
        if session is not None:
            jvm: Any = spark._jvm  # noqa: SLF001
            jvm.SparkSession.setActiveSession(session)
        return work(*args, **kwargs)

    return run
