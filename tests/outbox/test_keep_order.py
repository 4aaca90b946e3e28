"""`when_away="keep"`: no message overtakes one that its process has kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pymysql
import pytest

import escrowmq
from escrowmq.integrations import dbapi, outbox_relay
from escrowmq.integrations.dbapi.drivers import PLAIN, execute_on, find_driver
from escrowmq.integrations.outbox import kept
from escrowmq.testing import Broker

from .conftest import Place


def connect_to(place: Place) -> Any:
    """A connection whose transactions read the snapshot of their first statement."""
    if place.kind == "mariadb":
        return pymysql.connect(unix_socket=place.address, user="root", database=place.name)
    connection = psycopg.connect(place.address)
    connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    return connection


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_transaction_with_an_old_snapshot_overtakes_none_that_was_kept(
    escrowmq_broker: Broker,
    new_place: Callable[[str], Place],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    """It did not see the rows, and sent at once."""
    monkeypatch.setattr(outbox_relay.Relay, "_run", lambda self: None)  # its passes are made here
    place = new_place(kind)
    with escrowmq.Producer(group="shop", topics=["T"]) as producer:
        outbox = dbapi.Outbox(producer, lambda: connect_to(place), when_away="keep")
        outbox.create_tables()
        first, second = connect_to(place), connect_to(place)
        _, driver = find_driver(first, PLAIN)
        before = [escrowmq.Message("T", b"left by another process")]
        for statement in kept.insert_rows(driver.family, before, bundle="b", now_ms=0):
            execute_on(first, driver, statement)
        first.commit()
        with outbox.transaction(first) as tx:
            first.cursor().execute("select count(*) from escrowmq_kept")  # it sees that row
            outbox.hand_over_kept()
            later = outbox.transaction(second)
            late = later.__enter__()
            second.cursor().execute("select count(*) from escrowmq_kept")  # it sees none
            tx.send("T", b"first")
            late.send("T", b"second")
        assert outbox.kept().count == 1
        later.__exit__(None, None, None)
        outbox.hand_over_kept()
        producer.flush()
        outbox.close()
        first.close()
        second.close()
    assert escrowmq_broker.delivered("T") == [b"left by another process", b"first", b"second"]
