import logging

import pytest


def test_a_test_sees_what_we_log_and_nothing_of_others(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("asyncio").error("Task was destroyed but it is pending!")
    logging.getLogger("escrowmq.store.flush").error("the disk is full")
    assert caplog.messages == ["the disk is full"]
