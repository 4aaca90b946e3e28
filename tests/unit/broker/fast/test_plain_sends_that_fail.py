"""Plain messages of v5 clients that cannot be stored at once: the general way gets them."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest

from escrowmq.errors import DiskFull
from escrowmq.proxy.gen import v2

from .test_plain_sends import Both, Side, plains


def test_messages_are_refused_while_the_disk_is_full() -> None:
    both = Both()
    both.send(*plains(30))
    before = both.put.plain.count

    def fill(side: Side, percent: int) -> None:
        side.world.exchange.disk.used_percent = percent
        side.world.exchange.advance(20_000)

    both.do(partial(fill, percent=97))
    assert {each.status.code for each in both.send(*plains(4))} == {v2.INTERNAL_SERVER_ERROR}
    assert both.put.plain.count == before
    both.do(partial(fill, percent=20))
    assert {each.status.code for each in both.send(*plains(4))} == {v2.OK}
    assert both.put.plain.count == before + 4
    both.end()


def test_log_that_takes_no_run_takes_the_messages_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    both = Both()
    both.send(*plains(30))
    log = both.put.world.exchange.core.broker.store.log
    append = log.append
    refused = 0

    def refuse_runs(data: bytes, stored_ms: int, **more: Any) -> None:
        nonlocal refused
        if not refused:
            refused += 1
            raise DiskFull("no room for so much")
        append(data, stored_ms, **more)

    monkeypatch.setattr(log, "append", refuse_runs)
    before = both.put.plain.count
    both.send(*plains(6))
    assert (refused, both.put.plain.count) == (1, before)
    monkeypatch.undo()
    both.do(lambda side: side.world.exchange.advance(5))
    both.send(*plains(6))
    assert both.put.plain.count == before + 6
    both.end()


def test_what_cannot_be_put_for_a_fault_of_ours_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    both = Both()
    both.send(*plains(30))
    puts = both.put.plain._puts
    put = puts.put_sends
    count = 0

    def fail_third(*values: Any, **more: Any) -> Any:
        nonlocal count
        count += 1
        if count == 3:
            raise RuntimeError("no such luck")
        return put(*values, **more)

    monkeypatch.setattr(puts, "put_sends", fail_third)
    with caplog.at_level(logging.CRITICAL):
        both.send(*plains(6))
    monkeypatch.undo()
    assert count == 3
    both.end()
