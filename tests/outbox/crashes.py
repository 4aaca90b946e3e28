"""Processes that die while they take an order: at each step, and at any moment. Afterwards every
order has its events, and every event its order.

A run is one process, which takes one order with one to three events and is killed; those that live
answer for the others. `crash_runs.py` makes many. In a shop that keeps events (`when_away="keep"`),
the process may lose the broker on top of that, or only hand over what others have kept.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import escrowmq
from escrowmq.client import outbox_messages as engine
from escrowmq.client.blocking.outbox_messages import MarkedMessages
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import ConnectFailed, EscrowMQError, RequestTimeout
from escrowmq.integrations.dbapi import Outbox
from escrowmq.integrations.dbapi.addresses import make_connector
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import delivered

STEPS: Final = (
    "begun", "order", "marker", "first", "halves", "left", "commit", "end", "any", "none",
)  # fmt: skip
"""What was done last before the process dies, so that each step has one in front of it and one
behind it: the transaction was begun, the order and the marker inserted, the first event stored, all
events stored, COMMIT about to go, COMMIT done, the broker told; `any` is a random moment, `none`
lives."""

LOST: Final = ("", "before", "after", "second", "relay")
"""What the process sees of the broker: it is there; it cannot be reached; it has stored an event
and nothing more is heard of it; that, after the first event. `relay`: it is there, and the process
takes no order, but hands over what was kept."""

CHILD_S: Final = 60
MOMENT_MAX_S: Final = 0.25
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.outbox.crashes", "psycopg", "pymysql"])


@dataclass(frozen=True)
class Shop:
    """A service: its database, group and topic."""

    address: str
    nameserver: str
    group: str
    topic: str
    keeps: bool = False

    def outbox(self, producer: escrowmq.Producer) -> Outbox:
        """An outbox of its database."""
        when_away = "keep" if self.keeps else "refuse"
        return Outbox(producer, make_connector(self.address), when_away=when_away)


def prepare(shop: Shop) -> None:
    """Make the tables."""
    connect = make_connector(shop.address)
    with escrowmq.Producer(shop.nameserver, group=shop.group) as producer:
        Outbox(producer, connect).create_tables()
    connection = connect()
    connection.cursor().execute("create table orders (id varchar(40) primary key)")
    connection.commit()
    connection.close()


def crash(shop: Shop, step: str, number: int, chance: random.Random, *, lost: str = "") -> bool:
    """One process takes one order, and dies; False when it has lived to its end."""
    child = _FORKS.Process(target=_take_order, args=(shop, step, number, lost))
    child.start()
    child.join(chance.random() * MOMENT_MAX_S if step == "any" else CHILD_S)
    child.kill()
    child.join(CHILD_S)
    is_killed = child.exitcode == -signal.SIGKILL
    # An order that is kept, and a relay without anything to do, do not come by each step.
    is_sure = step != "any" and not shop.keeps
    assert not is_sure or is_killed is not (step == "none"), (step, child.exitcode)
    assert is_killed or child.exitcode == 0, (step, lost, child.exitcode)
    child.close()
    return is_killed


def differences(shop: Shop, server: Server) -> list[str]:
    """What does not belong together once all is settled."""
    connect = make_connector(shop.address)
    with escrowmq.Producer(shop.nameserver, group=shop.group) as producer:
        outbox = shop.outbox(producer)
        until("all are handed over", lambda: not outbox.kept().count, within_s=120)
        until("the end of all", lambda: not producer.unsettled_keys(), within_s=120)
    connection = connect()
    cursor = connection.cursor()
    cursor.execute("select id from orders")
    expected = collections.Counter(
        event for row in cursor.fetchall() for event in _events(int(row[0]))
    )
    connection.close()
    seen = collections.Counter(message.body.decode() for message in delivered(server, shop.topic))
    return [
        f"{event}: {expected[event]} expected, {seen[event]} seen"
        for event in expected | seen
        if expected[event] != seen[event]
    ]


def _events(number: int) -> list[str]:
    return [f"{number}.{n}" for n in range(1 + number % 3)]


def _take_order(shop: Shop, step: str, number: int, lost: str) -> None:
    connect = make_connector(shop.address)
    _die_at(step)
    _lose(lost)
    # A busy machine is no reason to refuse an order here.
    with escrowmq.Producer(
        shop.nameserver, group=shop.group, timeout_ms=CHILD_S * 1000 // 2
    ) as producer:
        outbox = shop.outbox(producer)
        if lost == "relay":
            with contextlib.suppress(EscrowMQError):  # others hold what it wants
                outbox.hand_over_kept()
            return
        connection = connect()
        with outbox.transaction(connection) as tx:
            if step == "begun":
                _die()
            connection.cursor().execute(f"insert into orders (id) values ('{number}')")
            if step == "order":
                _die()
            for event in _events(number):
                tx.send(shop.topic, event.encode())
        connection.close()


def _die_at(step: str) -> None:
    """Let this process die behind a step."""
    known: dict[str, Any] = {
        "stored": MarkedMessages.wait_until_stored,
        "leave": MarkedMessages.leave_to_marker,
    }

    def dying(name: str, *, before: str, after: str) -> Any:
        def call(self: MarkedMessages, *given: Any) -> None:
            if step == before:
                _die()
            known[name](self, *given)
            if step == after:
                _die()

        return call

    store = engine.MarkedMessages._store

    async def stored(
        self: engine.MarkedMessages, message: Message, queue: MessageQueue | None
    ) -> None:
        await store(self, message, queue)
        if step == "first":
            _die()

    engine.MarkedMessages._store = stored  # type: ignore[method-assign]
    MarkedMessages.wait_until_stored = dying("stored", before="marker", after="halves")  # type: ignore[method-assign]
    MarkedMessages.leave_to_marker = dying("leave", before="", after="left")  # type: ignore[method-assign]
    if step == "end":
        hear_and_die(_die)
    if step == "commit":
        MarkedMessages.report_commit = lambda self: _die()  # type: ignore[method-assign]


def hear_and_die(die: Callable[[], None]) -> None:
    """Let this process die behind a broker's word that it knows of a commit."""
    tell = engine.send_end_in_background  # type: ignore[attr-defined]

    def told(*given: Any, heard: Any, **more: Any) -> Any:
        def hear(error: Any) -> None:
            heard(error)
            die()

        return tell(*given, heard=hear, **more)

    engine.send_end_in_background = told  # type: ignore[attr-defined]


def _lose(lost: str) -> None:
    """Let this process lose the broker."""
    store = engine.MarkedMessages._store
    count = iter(range(1_000))

    async def stored(
        self: engine.MarkedMessages, message: Message, queue: MessageQueue | None
    ) -> None:
        is_first = next(count) == 0
        if lost == "before":
            raise ConnectFailed("planted")
        await store(self, message, queue)
        if lost == "after" or (lost == "second" and not is_first):
            raise RequestTimeout("planted")

    if lost and lost != "relay":
        engine.MarkedMessages._store = stored  # type: ignore[method-assign]
        # So that a single event goes that way, too.
        engine.MarkedMessages.try_send = lambda *_: False  # type: ignore[method-assign]


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
