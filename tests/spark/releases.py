"""What this release of PySpark can do: tests are skipped for want of it, and say so."""

from __future__ import annotations

import pytest


def has_limits() -> bool:
    """Whether sources in Python are told how much a batch may have."""
    try:
        from pyspark.sql.streaming.datasource import ReadLimit  # noqa: F401
    except ImportError:
        return False
    return True


needs_limits = pytest.mark.skipif(
    not has_limits(), reason="before PySpark 4.2, sources in Python are passed no limits"
)
needs_no_limits = pytest.mark.skipif(
    has_limits(), reason="what a batch has without limits, in releases before PySpark 4.2"
)
