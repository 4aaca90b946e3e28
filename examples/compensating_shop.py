"""A shop with a PostgreSQL database: what an application with compensation writes itself.

See docs/compensation.md; the tests in tests/compensation run it.
"""

from __future__ import annotations

from collections.abc import Iterable

import psycopg

import escrowmq
from escrowmq.compensation import Member

_TABLES = """
create table if not exists booked (order_id text not null, amount int not null);
create table if not exists done (
    message_id text primary key,
    topic text not null,
    nth bigserial not null
);
"""


class Shop:
    """Books each order once: the message's id and the booking are one database transaction."""

    def __init__(self, url: str) -> None:
        self._url = url
        with psycopg.connect(url) as db:
            db.execute(_TABLES)

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        """Book an order, unless its message was booked before: both rows, or neither."""
        with psycopg.connect(self._url) as db:
            noted = db.execute(
                "insert into done (message_id, topic) values (%s, %s) on conflict do nothing",
                (message.message_id, message.topic),
            ).rowcount
            if noted:
                order_id, amount = message.body.decode().split(":")
                db.execute("insert into booked values (%s, %s)", (order_id, int(amount)))
            return bool(noted)

    def done_since(self, mark: str | None) -> tuple[Iterable[Member], str]:
        """The messages that were done since a mark. Numbers are given at the insert and seen at the
        commit, so a mark leaves room for transactions that were under way."""
        with psycopg.connect(self._url) as db:
            rows = db.execute(
                "select message_id, topic, nth from done where nth > %s order by nth",
                (int(mark or 0) - 100,),
            ).fetchall()
        return [Member(row[0], row[1]) for row in rows], str(max((r[2] for r in rows), default=0))

    def booked(self) -> list[str]:
        """Every order that was booked, in order."""
        with psycopg.connect(self._url) as db:
            rows = db.execute("select order_id from booked order by order_id").fetchall()
        return [row[0] for row in rows]
