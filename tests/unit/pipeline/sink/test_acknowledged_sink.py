"""What of many failures is told."""

from __future__ import annotations

from escrowmq.pipeline.sink.acknowledged_sink import first_error


def test_the_first_error_of_groups_in_groups() -> None:
    first, second = ValueError("first"), ValueError("second")
    inner = ExceptionGroup("inner", [first, second])
    assert first_error(ExceptionGroup("outer", [inner, second])) is first
