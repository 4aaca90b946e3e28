"""Whatever happens to a handler, and at which step of it, its message changes the database once:
twice 0 times, never 0 times."""

from __future__ import annotations

import collections
from pathlib import Path

import psycopg
import pytest

import escrowmq
from escrowmq.integrations.outbox import schema
from escrowmq.integrations.outbox.tables import SqlFamily
from tests.harness.parameters import quick
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import delivered

from .inbox_faults import FAULTS, INTEGRATIONS, Place, sent_again, start

# On the event loop, a handler that is given up is cancelled, and cannot go on behind its time.
_PLAIN_ONLY = ("slow", "begun")


def faults_of(integration: str) -> list[str]:
    if integration != "asyncio":
        return FAULTS
    return [each for each in FAULTS if not any(word in each for word in _PLAIN_ONLY)]


@pytest.mark.parametrize("integration", quick(["django", "asyncio"], of=INTEGRATIONS))
def test_each_message_is_handled_once_whatever_its_handler_meets(
    integration: str,
    server: Server,
    topic: str,
    group: str,
    postgres_address: str,
    tmp_path: Path,
) -> None:
    with psycopg.connect(postgres_address) as connection:
        for statement in schema.create_statements(SqlFamily.POSTGRESQL):
            connection.execute(statement.text)
        connection.execute("create table rows (name varchar(40))")
    place = Place(server.nameserver, group, topic, postgres_address, tmp_path)
    faults = faults_of(integration)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        for name in faults:
            producer.send(topic, name.encode(), keys=[name])
    child = start(integration, place)

    def is_done() -> bool:
        nonlocal child
        if not child.is_alive():
            assert child.exitcode == -9, child.exitcode
            child = start(integration, place)
        _resend_dead(server, group, tmp_path)
        return set(faults) <= set(_rows(place)) and _lag(server, group) == 0

    try:
        until("a row of each message", is_done, within_s=120)
    finally:
        child.kill()
        child.join()
    counts = collections.Counter(_rows(place))
    assert {name: counts[name] for name in faults if counts[name] != 1} == {}
    met = {file.name for file in tmp_path.iterdir()} & set(faults)
    assert met == set(faults)
    resent = {name for name in faults if sent_again(tmp_path, name).exists()}
    assert resent == {name for name in faults if name.startswith("reject")}


def _rows(place: Place) -> list[str]:
    with psycopg.connect(place.address) as connection:
        return [row[0] for row in connection.execute("select name from rows").fetchall()]


def _lag(server: Server, group: str) -> int:
    with escrowmq.Admin(server.nameserver) as admin:
        return admin.groups.describe(group).lag


def _resend_dead(server: Server, group: str, folder: Path) -> None:
    """What an operator does once the handler is mended: send the dead letters again."""
    for message in delivered(server, f"%DLQ%{group}", queues=1):
        resent = sent_again(folder, message.key_list[0])
        if not resent.exists():
            resent.touch()
            with escrowmq.Admin(server.nameserver) as admin:
                admin.messages.resend(message)
