from __future__ import annotations

from escrowmq.client.unsettled_transactions import NOT_YET, first_stored_ms


def test_a_log_says_since_when_it_has_messages() -> None:
    """One that was begun later than a broker was noted is not the one that took the messages."""
    for first_offset, first_ms, expected_ms in (
        ("0", "17", 17), ("0", "-1", NOT_YET), ("-1", "0", NOT_YET), ("1073741824", "17", 0),
        ("", "17", 0),
    ):  # fmt: skip
        figures = {"commitLogMinOffset": first_offset, "earliestMessageTimeStamp": first_ms}
        assert first_stored_ms(figures) == expected_ms
    assert first_stored_ms({}) == 0
