"""Old markers go, but for those that a broker may still ask for; the tables by migration."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

import escrowmq
from escrowmq.errors import ConnectFailed, RouteMissing, UsageError
from escrowmq.integrations.dbapi.addresses import make_connector
from escrowmq.integrations.sqlalchemy import Outbox, add_tables
from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import EscrowServer, Server, new_topic
from tests.sdk.reading import wait_bodies

from .conftest import Place
from .test_check_from_db import DIES, address_of

AGED = "update escrowmq_markers set made_ms = made_ms - 10 * 86400000 where says = 'commit'"


@pytest.fixture
def patient_server(tmp_path: Path) -> Iterator[Server]:
    """A broker that asks for nothing by itself."""
    made = Server("escrow", tmp_path / "server", {"transactionTimeOut": 3_600_000}).start()
    yield made
    made.kill()


@pytest.mark.ours_alone
def test_a_marker_stays_for_as_long_as_its_transaction_is_pending(
    patient_server: Server, new_place: Callable[[str], Place]
) -> None:
    place, server = new_place("sqlite"), patient_server
    topic = new_topic(server, "paid")
    engine = sa.create_engine(place.url)
    with escrowmq.Producer(server.nameserver, group="orders") as producer:
        Outbox(producer, engine).create_tables()
    command = [sys.executable, "-c", DIES, server.nameserver, "orders", topic, address_of(place)]
    assert subprocess.run([*command, "after"], check=False, timeout=60).returncode == -9
    connection = make_connector(address_of(place))()
    connection.execute(AGED)
    connection.commit()
    connection.close()
    with escrowmq.Producer(server.nameserver, group="orders") as producer:
        outbox = Outbox(producer, engine)
        assert outbox.forget_markers() == 0, "its message is pending"
        with escrowmq.Admin(server.nameserver) as admin:
            admin.transactions.check()
        wait_bodies(server, topic, [b"after"])
        until("its end", lambda: not producer.unsettled_keys())
        assert outbox.forget_markers(keep=dt.timedelta(days=11)) == 0
        assert outbox.forget_markers() == 1
        assert outbox.find_name()
    engine.dispose()


def test_alembic_finds_nothing_to_change_behind_create_tables(
    server: Server, group: str, place: Place
) -> None:
    engine = sa.create_engine(place.url)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        Outbox(producer, engine).create_tables()
    metadata = sa.MetaData()
    add_tables(metadata)
    with engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []
    metadata.drop_all(engine)
    metadata.create_all(engine)
    with escrowmq.Producer(server.nameserver, group=group) as producer:
        Outbox(producer, engine).create_tables()
    engine.dispose()


@pytest.mark.ours_alone
def test_no_marker_goes_while_a_broker_that_took_messages_says_nothing(
    tmp_path: Path, new_place: Callable[[str], Place]
) -> None:
    """Only those that the name server knew were asked, and it knows nobody whose connection is
    gone: the markers of what that one had pending were deleted."""
    engine = sa.create_engine(new_place("sqlite").url)
    names = EscrowServer(tmp_path / "names", verb="nameserver")

    def broker(name: str) -> EscrowServer:
        return EscrowServer(
            tmp_path / name, verb="broker", nameserver=names.nameserver, brokerName=name
        )

    second = broker("broker-b")
    with escrowmq.Producer(names.nameserver, group="orders") as producer:
        outbox = Outbox(producer, engine)
        outbox.create_tables()
        for body in (b"1", b"2"):
            with engine.connect() as connection, outbox.transaction(connection) as tx:
                tx.send("paid", body)
        with engine.begin() as connection:
            connection.execute(sa.text(AGED))
        first = broker("broker-a")
        second.kill()
        until("it is gone", lambda: "broker-b" not in wire.registered_brokers(names.nameserver))
        with pytest.raises(ConnectFailed):  # this process remembers where it sent
            outbox.forget_markers()
    with escrowmq.Producer(names.nameserver, group="orders") as producer:
        outbox = Outbox(producer, engine)
        with pytest.raises(RouteMissing, match="no answer from broker-b, which has taken messages"):
            outbox.forget_markers()
        lost = EscrowServer(
            tmp_path / "lost", verb="broker", nameserver=names.nameserver, brokerName="broker-b"
        )
        with pytest.raises(RouteMissing, match="has begun an empty log since"):
            outbox.forget_markers()
        lost.kill()
        until("it is gone", lambda: "broker-b" not in wire.registered_brokers(names.nameserver))
        second = broker("broker-b")
        with pytest.raises(UsageError, match="broker-b; the name server knows"):
            outbox.forget_markers(gone=["broker-b"])
        assert outbox.forget_markers() == 2
        second.kill()
        until("it is gone", lambda: "broker-b" not in wire.registered_brokers(names.nameserver))
        assert outbox.forget_markers(gone=["broker-b"]) == 0
        assert outbox.forget_markers() == 0
    for each in (first, names):
        each.kill()
    engine.dispose()
