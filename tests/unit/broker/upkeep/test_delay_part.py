"""Damaged files of progress: what was delivered does not come again."""

from __future__ import annotations

import copy

import pytest

from escrowmq.delivery import delay_progress, timer_file, timer_snapshot
from tests.harness.exchange import Exchange

BODIES = [b"0", b"1", b"2", b"3", b"4"]


def delivered() -> Exchange:
    """A broker that was closed after it had delivered messages at their times."""
    exchange = Exchange()
    caller = exchange.connect()
    for body in BODIES:
        caller.send("U", body, TIMER_DELIVER_MS=str(exchange.now_ms + 1_500))
    exchange.advance(20_000)
    exchange.core.close(exchange.now_ms)
    return exchange


def after_restart_with(
    before: Exchange, data: bytes | None, *, former: bytes | None
) -> list[bytes]:
    disk = copy.deepcopy(before.disk)
    disk.restart()
    for path in (timer_file.PATH, f"{timer_file.PATH}.bak"):
        disk.remove(path)
    for content in (former, data):
        if content is not None:
            disk.replace(timer_file.PATH, content)
    after = Exchange(disk=disk, now_ms=before.now_ms + 1_000)
    after.advance(10_000)
    return after.connect().bodies("U")


def damages(data: bytes) -> dict[str, bytes]:
    return {"zeros": bytes(4096), "torn": data[:2048], "short": data[:40], "empty": b""}


def test_the_former_file_replaces_a_damaged_one(caplog: pytest.LogCaptureFixture) -> None:
    before = delivered()
    data = before.disk.read(timer_file.PATH)
    assert data is not None
    for damaged in damages(data).values():
        caplog.clear()
        assert after_restart_with(before, damaged, former=data) == BODIES
        assert "config/timercheck cannot be read" in caplog.text
        assert "read from config/timercheck.bak" in caplog.text


def test_the_log_says_what_was_delivered_if_no_file_does(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = delivered()
    data = before.disk.read(timer_file.PATH)
    assert data is not None
    for damaged in damages(data).values():
        caplog.clear()
        assert after_restart_with(before, damaged, former=None) == BODIES
        assert "config/timercheck cannot be read" in caplog.text
    assert after_restart_with(before, None, former=None) == BODIES
    assert after_restart_with(before, data[:2048] + bytes(2048), former=None) == BODIES
    assert "a second time" not in caplog.text
    monkeypatch.setattr(delay_progress, "SCAN_SIZE_MAX", 0)
    assert after_restart_with(before, None, former=None) == 2 * BODIES
    assert "may be delivered a second time" in caplog.text


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_broker_saves_a_snapshot_of_what_waits(
    monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    monkeypatch.setattr(timer_snapshot, "SNAPSHOT_MIN", 3)
    exchange = Exchange()
    caller = exchange.connect()
    caller.send("U", b"far", TIMER_DELAY_SEC="3600")
    for body in BODIES:
        caller.send("U", body, TIMER_DELAY_SEC="1")
    exchange.advance(60_000)
    saved = timer_snapshot.decode(exchange.disk.read(timer_snapshot.PATH))
    assert saved is not None
    assert (saved.taken, list(saved.pending)) == (6, [0])
    (exchange.reopen if is_clean else exchange.crash)()
    exchange.advance(1_000)
    assert exchange.core.broker.timer.pending_count == 1
    assert exchange.core.broker.timer.next_read_offset == 6
    exchange.advance(3_600_000)
    assert exchange.connect().bodies("U") == [*BODIES, b"far"]
