from __future__ import annotations

import pytest

from escrowmq.acl.signed_time import signed_time_fault

NOW_MS = 1_767_225_600_500
"""2026-01-01T00:00:00.5Z"""


@pytest.mark.parametrize(
    "text",
    [
        "20260101T000000Z", "20260101T001500Z", "20251231T234500Z", "2026-01-01T00:00:00Z",
        "2026-01-01T08:00:00+08:00", "2026-01-01T00:00:00.123456789Z",
    ],
)  # fmt: skip
def test_times_within_the_window_are_fine(text: str) -> None:
    assert not signed_time_fault(text.encode(), NOW_MS, 900)


def test_others_are_told_how_far_they_are_off() -> None:
    assert signed_time_fault(b"20260101T080000Z", NOW_MS, 900) == (
        "x-mq-date-time is 20260101T080000Z, 28800 s from this broker's time, and "
        "escrowSignatureWindowSeconds allows 900; set the client's clock, or its time zone to UTC: "
        "clients for Java and Python sign their local time"
    )


@pytest.mark.parametrize("content", [b"", b"now", b"\xff\0", b"20260101T000000Z" * 10, b"x" * 5000])
def test_what_is_no_time_is_named(content: bytes) -> None:
    fault = signed_time_fault(content, NOW_MS, 900)
    assert fault.startswith("x-mq-date-time is '")
    assert fault.endswith("wants a time like 20260101T120000Z there")
    assert len(fault) < 250
