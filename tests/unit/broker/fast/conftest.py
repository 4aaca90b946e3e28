"""Without the native lane nothing takes the fast path, so that there is nothing to compare."""

from collections.abc import Iterator

import pytest

from escrowmq.lane.native import requests_lane

collect_ignore_glob = [] if requests_lane is not None else ["test_*.py"]


@pytest.fixture(autouse=True)
def no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The general path also serves what the fast path fails at, so that only the log tells of a
    fault. A test that causes one clears `caplog`."""
    yield
    told = [each.getMessage() for each in caplog.get_records("call")]
    assert not [text for text in told if text.endswith("take the general path")]
