"""The outbox of Django on real databases, with a real broker."""

from __future__ import annotations

import contextlib
import logging
import unittest
from collections.abc import Callable, Iterator
from typing import Any

import django
import psycopg
import pymysql
import pytest
from django.conf import settings
from django.core.management import call_command
from django.db import IntegrityError, connections, transaction
from django.test import TestCase

import escrowmq
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import EscrowMQError, MarkerNotWritten, UsageError
from tests.interop import servers
from tests.interop.drivers import unique
from tests.interop.servers import Server
from tests.sdk.reading import bodies, wait_bodies

from .conftest import Place

pymysql.version_info = (2, 2, 1, "final", 0)  # Django asks for mysqlclient of that release
pymysql.install_as_MySQLdb()
NOWHERE = {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}
if not settings.configured:
    settings.configure(
        DATABASES={"default": NOWHERE}, INSTALLED_APPS=["escrowmq.integrations.django"]
    )
    django.setup()

from escrowmq.integrations.django import Outbox, consume_once  # noqa: E402


@pytest.fixture
def using(place: Place) -> Iterator[str]:
    """The alias of an empty database with the outbox's tables and one of orders."""
    chosen: dict[str, Any] = {"ENGINE": "django.db.backends.sqlite3", "NAME": place.address}
    if place.kind == "postgresql":
        chosen = {"ENGINE": "django.db.backends.postgresql", **_parts(place.address)}
    elif place.kind == "mariadb":
        chosen = {"ENGINE": "django.db.backends.mysql", "NAME": place.name, "USER": "root",
                  "HOST": place.address}  # fmt: skip
    connections.settings["shop"] = connections.configure_settings(
        {"default": NOWHERE, "shop": chosen}
    )["shop"]
    call_command("migrate", database="shop", verbosity=0)
    execute("create table orders (id varchar(40) primary key)")
    yield "shop"
    connections["shop"].close()
    del connections["shop"], connections.settings["shop"]


def _parts(address: str) -> dict[str, str]:
    found = psycopg.conninfo.conninfo_to_dict(address)
    names = {"USER": "user", "NAME": "dbname", "HOST": "host"}
    return {ours: str(found[name]) for ours, name in names.items()}


def execute(text: str) -> list[Any]:
    with connections["shop"].cursor() as cursor:
        cursor.execute(text)
        return list(cursor.fetchall()) if text.startswith("select") else []


def add(number: str) -> None:
    execute(f"insert into orders (id) values ('{number}')")


def orders() -> list[str]:
    return [row[0] for row in execute("select id from orders order by id")]


@pytest.fixture
def producer(server: Server, group: str) -> Iterator[escrowmq.Producer]:
    with escrowmq.Producer(server.nameserver, group=group) as made:
        yield made


@pytest.fixture
def outbox(producer: escrowmq.Producer, using: str) -> Outbox:
    return Outbox(producer, using)


def test_an_atomic_block_commits_or_takes_all_back(
    server: Server, topic: str, outbox: Outbox
) -> None:
    with transaction.atomic("shop"):
        add("1")
        outbox.send(topic, b"1")
        with pytest.raises(KeyError), transaction.atomic("shop"):
            with transaction.atomic("shop"):
                add("2")
                outbox.send(topic, b"2")
            raise KeyError
        with transaction.atomic("shop"):
            outbox.send(topic, b"3")
        assert bodies(server, topic) == []
    with pytest.raises(KeyError), transaction.atomic("shop"):
        add("4")
        outbox.send(topic, b"4")
        raise KeyError
    with transaction.atomic("shop"):
        add("5")
    assert orders() == ["1", "5"]
    wait_bodies(server, topic, [b"1", b"3"])
    assert "commit" not in vars(connections["shop"])


def test_a_savepoint_of_the_programs_own_takes_its_messages_back(
    server: Server, topic: str, outbox: Outbox
) -> None:
    """Django notes only the savepoints of its blocks. Behind one with the marker's row, MariaDB and
    SQLite refused the commit."""
    with transaction.atomic("shop"):
        first = transaction.savepoint("shop")
        add("1")
        outbox.send(topic, b"1")
        transaction.savepoint_rollback(first, "shop")
        add("2")
        outbox.send(topic, b"2")
        second = transaction.savepoint("shop")
        with transaction.atomic("shop"):
            add("3")
            outbox.send(topic, b"3")
        transaction.savepoint_rollback(second, "shop")
        third = transaction.savepoint("shop")
        add("4")
        outbox.send(topic, b"4")
        transaction.savepoint_commit(third, "shop")
        transaction.savepoint_rollback(second, "shop")
        add("5")
        outbox.send(topic, b"5")
    assert orders() == ["2", "5"]
    wait_bodies(server, topic, [b"2", b"5"])
    with transaction.atomic("shop"):
        outbox.send(topic, b"6")
        transaction.set_rollback(True, "shop")
    assert not [name for name in vars(connections["shop"]) if "escrowmq" in name]
    assert "savepoint" not in vars(connections["shop"])


def test_what_another_tool_has_replaced_is_called_and_stays(
    server: Server, topic: str, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody handed the messages over then."""
    connection, calls = connections["shop"], list[str]()
    own = connection.commit

    def commit() -> None:
        calls.append("commit")
        own()

    monkeypatch.setattr(connection, "commit", commit)
    with transaction.atomic("shop"):
        outbox.send(topic, b"1")
    assert connection.commit is commit
    assert calls == ["commit"]
    wait_bodies(server, topic, [b"1"])


def test_a_message_that_is_changed_and_sent_again_is_two(
    server: Server, topic: str, outbox: Outbox
) -> None:
    message = escrowmq.Message(topic, b"1")
    with transaction.atomic("shop"):
        outbox.send(message)
        message.body = b"2"
        outbox.send(message)
        message.body = b"never sent"
    wait_bodies(server, topic, [b"1", b"2"])


def test_whatever_is_raised_before_the_commit_rolls_back(
    server: Server, topic: str, outbox: Outbox
) -> None:
    closed = servers.new_topic(server, unique("T"), perm=4)
    with pytest.raises(EscrowMQError), transaction.atomic("shop"):
        add("1")
        outbox.send(closed, b"1")
    assert orders() == []
    with pytest.raises(IntegrityError), transaction.atomic("shop"):
        add("1")
        outbox.send(topic, b"never")
        add("1")
    with transaction.atomic("shop"):
        add("2")
        outbox.send(topic, b"2")
    execute("drop table escrowmq_markers")
    with pytest.raises(MarkerNotWritten, match="migration"), transaction.atomic("shop"):
        add("3")
        outbox.send(topic, b"3")
    wait_bodies(server, topic, [b"2"])
    assert orders() == ["2"]


def test_what_the_database_rolled_back_by_itself_is_not_sent(
    server: Server, topic: str, outbox: Outbox
) -> None:
    """As it does for a deadlock, whose error somebody catches."""
    if connections["shop"].vendor == "postgresql":
        pytest.skip("PostgreSQL takes nothing more of a transaction that has failed")
    with pytest.raises(MarkerNotWritten, match="rolled back the transaction meanwhile"):
        with transaction.atomic("shop"):
            add("1")
            outbox.send(topic, b"never")
            execute("rollback")
            if connections["shop"].vendor == "sqlite":
                execute("begin")
            add("2")
    with transaction.atomic("shop"):
        with pytest.raises(KeyError), transaction.atomic("shop"):
            outbox.send(topic, b"never")
            raise KeyError
        add("3")
        outbox.send(topic, b"3")
    assert orders() == ["3"]
    wait_bodies(server, topic, [b"3"])
    outbox.close()
    with pytest.raises(UsageError, match="the outbox is closed"), transaction.atomic("shop"):
        outbox.send(topic, b"never")


def test_a_commit_that_is_interrupted_leaves_nothing_for_the_next_one(
    server: Server, topic: str, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Django keeps what is to be done on commit unless the database has refused it: the message of
    an order that does not exist was sent with the next one."""
    connection, called = connections["shop"], list[str]()

    def interrupted() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(connection, "_commit", interrupted)
        with pytest.raises(KeyboardInterrupt), transaction.atomic("shop"):
            add("1")
            outbox.send(topic, b"never")
            connection.on_commit(lambda: called.append("never"))
    with transaction.atomic("shop"):
        add("2")
        outbox.send(topic, b"2")
    assert (orders(), called) == (["2"], [])
    wait_bodies(server, topic, [b"2"])


def test_entries_of_another_transaction_are_neither_sent_nor_reported(
    server: Server, topic: str, outbox: Outbox
) -> None:
    """Whatever has left them among those to be called."""
    connection = connections["shop"]
    with pytest.raises(KeyError), transaction.atomic("shop"):
        outbox.send(topic, b"never")
        left = list(connection.run_on_commit)
        raise KeyError
    connection.run_on_commit += left
    with transaction.atomic("shop"):
        add("2")
        outbox.send(topic, b"2")
    wait_bodies(server, topic, [b"2"])


def test_a_lost_end_is_answered_from_the_marker(server: Server, topic: str, outbox: Outbox) -> None:
    def fail() -> None:
        raise KeyError

    with pytest.raises(KeyError), transaction.atomic("shop"):
        connections["shop"].on_commit(fail)  # so that nothing behind it is done on commit
        add("1")
        outbox.send(topic, b"1")
    assert orders() == ["1"]
    wait_bodies(server, topic, [b"1"])


def test_outside_a_transaction_nothing_can_wait(topic: str, outbox: Outbox) -> None:
    with pytest.raises(UsageError, match=r"transaction\.atomic"):
        outbox.send(topic, b"1")
    with pytest.raises(UsageError, match="are not awaited"):
        Outbox(object())  # type: ignore[arg-type]


def test_a_test_case_that_never_commits_is_told_so(
    topic: str, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    connection = connections["shop"]
    with caplog.at_level(logging.WARNING), transaction.atomic("shop"):
        outbox.send(topic, b"1")
        for _, call, _ in connection.run_on_commit:  # as captureOnCommitCallbacks does
            call()
        transaction.set_rollback(True, "shop")
    assert "TransactionTestCase" in caplog.text


def in_test_case(work: Callable[[TestCase], None]) -> None:
    """Run it as a test of Django's TestCase on the database."""

    class Case(TestCase):  # type: ignore[misc]
        databases = frozenset({"shop"})

        def runTest(self) -> None:  # noqa: N802 - unittest's name
            work(self)

    result = unittest.TestResult()
    unittest.TestSuite([Case()]).run(result)
    assert result.testsRun == 1
    for _, text in result.failures + result.errors:
        pytest.fail(text)


def test_a_test_case_sends_what_it_captures_where_that_is_wanted(
    server: Server, topic: str, producer: escrowmq.Producer, using: str
) -> None:
    outbox = Outbox(producer, using, sends_in_test_case=True)

    def work(case: TestCase) -> None:
        with case.captureOnCommitCallbacks(using="shop", execute=True):
            with transaction.atomic("shop"):
                add("1")
                outbox.send(topic, b"1", keys=["o-1"])
            with pytest.raises(KeyError), transaction.atomic("shop"):
                outbox.send(topic, b"rolled back")
                raise KeyError
            assert bodies(server, topic) == []
        wait_bodies(server, topic, [b"1"])
        with case.captureOnCommitCallbacks(using="shop"), transaction.atomic("shop"):
            outbox.send(topic, b"not executed")

    in_test_case(work)
    assert orders() == []
    with transaction.atomic("shop"):  # behind it, all is as it was
        add("2")
        outbox.send(topic, b"2")
    wait_bodies(server, topic, [b"1", b"2"])


def test_a_test_case_sends_nothing_where_that_was_not_asked_for(
    server: Server, topic: str, outbox: Outbox, caplog: pytest.LogCaptureFixture
) -> None:
    def work(case: TestCase) -> None:
        with case.captureOnCommitCallbacks(using="shop", execute=True), transaction.atomic("shop"):
            outbox.send(topic, b"1")

    in_test_case(work)
    assert "sends_in_test_case=True" in caplog.text
    assert bodies(server, topic) == []


def test_outside_a_test_case_nothing_is_sent_before_the_commit_whatever_is_set(
    server: Server, topic: str, producer: escrowmq.Producer, using: str
) -> None:
    """As when somebody runs what is to be done on commit by hand, in production."""
    outbox = Outbox(producer, using, sends_in_test_case=True)
    with transaction.atomic("shop"):
        outbox.send(topic, b"1")
        for _, call, _ in connections["shop"].run_on_commit:
            call()
        transaction.set_rollback(True, "shop")
    assert bodies(server, topic) == []


def test_a_message_is_handled_once(outbox: Outbox) -> None:
    fails = True

    @consume_once(using="shop", group="mailer")
    def handle(message: HeldMessage) -> None:
        add(message.message_id)
        if fails:
            raise KeyError

    with pytest.raises(KeyError):
        handle(HeldMessage("T", b"x", message_id="1"))
    fails = False
    for number in ("1", "1", "2"):
        handle(HeldMessage("T", b"x", message_id=number))
    assert orders() == ["1", "2"]
    assert outbox.forget_handled() == outbox.forget_markers() == 0
    with pytest.raises(UsageError, match="plain function"):

        @consume_once()
        async def handle_awaited(message: HeldMessage) -> None:
            pass


def test_work_behind_a_rollback_is_not_committed_without_its_record(outbox: Outbox) -> None:
    is_deadlocked = True

    @consume_once(using="shop", group="mailer")
    def handle(message: HeldMessage) -> None:
        add("1")
        if is_deadlocked:
            execute("rollback")
        add("2")

    with pytest.raises(MarkerNotWritten):
        handle(HeldMessage("T", b"x", message_id="1"))
    is_deadlocked = False
    execute("delete from orders")  # SQLite's driver has begun no other transaction
    handle(HeldMessage("T", b"x", message_id="1"))
    assert orders() == ["1", "2"]


def test_work_whose_transaction_cannot_commit_is_not_taken_for_done(outbox: Outbox) -> None:
    """PostgreSQL rolls back in silence at the COMMIT after an error, Django wherever it is told
    to."""
    is_ended = connections["shop"].vendor == "postgresql"

    @consume_once(using="shop", group="mailer")
    def handle(message: HeldMessage) -> None:
        add(message.message_id)
        with contextlib.suppress(IntegrityError):
            add(message.message_id)

    @consume_once(using="shop", group="mailer")
    def handle_and_end(message: HeldMessage) -> None:
        add(message.message_id)
        transaction.set_rollback(True, "shop")

    with pytest.raises(MarkerNotWritten) if is_ended else contextlib.nullcontext():
        handle(HeldMessage("T", b"x", message_id="1"))
    with pytest.raises(MarkerNotWritten):
        handle_and_end(HeldMessage("T", b"x", message_id="2"))
    assert orders() == ([] if is_ended else ["1"])


def test_the_migration_can_be_taken_back(using: str) -> None:
    call_command("migrate", "escrowmq", "zero", database="shop", verbosity=0)
    with pytest.raises(Exception, match="escrowmq_handled"):
        execute("select * from escrowmq_handled")
