"""A program that gevent or eventlet has patched, as `tests/frameworks/test_gevent.py` runs it:
`python -m tests.frameworks.patched SCENE NAMESERVER`. It says `held` when all of a scene was so."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Final

import pytest

SCENES: dict[str, Callable[[str], None]] = {}
PATIENCE_S: Final = 60


def scene(function: Callable[[str], None]) -> Callable[[str], None]:
    """Add it to those that can be asked for."""
    SCENES[function.__name__] = function
    return function


def patch() -> None:
    """As `gunicorn -k gevent` and `celery -P gevent` do."""
    from gevent import monkey

    monkey.patch_all()


@scene
def others_go_on_while_one_waits(nameserver: str) -> None:
    """The main greenlet waits for what another one has yet to send."""
    patch()
    import gevent

    import escrowmq

    with (
        escrowmq.Producer(nameserver, group="green") as producer,
        escrowmq.Consumer(nameserver, group="waits", topic="waited-for") as consumer,
    ):
        sent = gevent.spawn_later(0.2, producer.send, "waited-for", b"at last")
        (message,) = consumer.receive(1, timeout_s=PATIENCE_S)
        assert message.body == b"at last"
        message.ack()
        assert sent.get().status.name == "OK"
        many = [gevent.spawn(producer.send, "crowd", b"%d" % n) for n in range(50)]
        gevent.joinall(many, raise_error=True)


@scene
def handlers_and_checks_run_beside_the_rest(nameserver: str) -> None:
    """They are greenlets of the same hub, as many at a time as they may be."""
    patch()
    import gevent
    from gevent.event import Event

    import escrowmq

    asked: list[bool] = []
    hub = gevent.get_hub()

    def check(message: escrowmq.Message) -> escrowmq.Outcome:
        gevent.sleep(0.01)
        asked.append(gevent.get_hub() is hub)
        return escrowmq.Outcome.COMMIT

    seen: list[bytes] = []
    all_began, is_over = Event(), Event()

    def handle(message: escrowmq.ReceivedMessage) -> None:
        assert gevent.get_hub() is hub
        seen.append(message.body)
        if len(seen) == 5:
            all_began.set()
        assert all_began.wait(PATIENCE_S), "five run at a time"
        if len(seen) == 12:
            is_over.set()

    with escrowmq.Producer(nameserver, group="green-checks", check=check) as producer:
        for n in range(11):
            producer.send("handled", b"%d" % n)
        with producer.transaction("handled", b"checked") as tx:
            tx.unknown()
        with escrowmq.Consumer(
            nameserver, group="handles", topic="handled", handler=handle, concurrency=5
        ):
            assert is_over.wait(PATIENCE_S), seen
    assert asked == [True]


@scene
def a_timeout_of_gevent_ends_a_call(nameserver: str) -> None:
    """What was cancelled so is cancelled in the client's thread, too."""
    patch()
    import gevent

    import escrowmq

    with escrowmq.Consumer(nameserver, group="late", topic="never-sent") as consumer:
        with gevent.Timeout(0.2, False):
            consumer.receive(1, timeout_s=10 * PATIENCE_S)
            raise AssertionError("nothing can have come")
        assert consumer.receive(1, timeout_s=0.01) == []


@scene
def what_was_imported_before_works_too(nameserver: str) -> None:
    """gevent warns of this, and it is common."""
    import escrowmq

    patch()
    with escrowmq.Producer(nameserver, group="early") as producer:
        producer.send("early", b"1")
    for message in escrowmq.Consumer(nameserver, group="early-reader", topic="early"):
        assert message.body == b"1"
        message.ack()
        break  # the end of the program closes the consumer


@scene
def asyncios_own_loop_will_do(nameserver: str) -> None:
    """Where uvloop is not installed; the name server's name is looked up, offsets are written."""
    patch()
    sys.modules["uvloop"] = None  # type: ignore[assignment]
    import tempfile

    import escrowmq

    port = nameserver.rpartition(":")[2]
    with (
        tempfile.TemporaryDirectory() as folder,
        escrowmq.Producer(f"localhost:{port}", group="own") as producer,
        escrowmq.Consumer(
            nameserver, group="own-reader", topic="own", is_broadcasting=True,
            consume_from="first", offsets_folder=folder,
        ) as consumer,
    ):  # fmt: skip
        producer.send("own", b"1")
        (message,) = consumer.receive(1, timeout_s=PATIENCE_S)
        message.ack()
        consumer.commit()


@scene
def an_outbox_and_its_reader_share_the_hub(nameserver: str) -> None:
    """One transaction at a time: SQLite's driver holds the hub up while it waits for a lock."""
    patch()
    import tempfile

    import gevent
    import sqlalchemy as sa
    from sqlalchemy.orm import Session

    import escrowmq
    from escrowmq.integrations.sqlalchemy import Outbox

    with (
        tempfile.TemporaryDirectory() as folder,
        escrowmq.Producer(nameserver, group="green-outbox") as producer,
    ):
        engine = sa.create_engine(f"sqlite:///{folder}/orders.db")
        outbox = Outbox(producer, engine)
        outbox.create_tables()

        def order(n: int) -> None:
            with Session(engine) as session, outbox.transaction(session):
                outbox.send(session, "ordered", b"%d" % n)

        def orders() -> None:
            for n in range(5):
                order(n)

        ordering = gevent.spawn(orders)
        with escrowmq.Consumer(nameserver, group="orders-reader", topic="ordered") as consumer:
            found: set[bytes] = set()
            while len(found) < 5:
                messages = consumer.receive(5, timeout_s=PATIENCE_S)
                assert messages, found
                found |= {message.body for message in messages}
                for message in messages:
                    message.ack()
        ordering.get()
        engine.dispose()


@scene
def eventlet_is_refused(nameserver: str) -> None:
    """With a word, when the client is made."""
    import warnings

    warnings.simplefilter("ignore")  # eventlet says at each import that it is at its end
    import eventlet

    eventlet.monkey_patch()
    import escrowmq

    with pytest.raises(escrowmq.errors.UsageError, match=r"eventlet has replaced .* use gevent"):
        escrowmq.Producer(nameserver, group="events")


@scene
def a_broker_in_the_same_process_is_refused(_nameserver: str) -> None:
    """The testing kit's: it has threads of its own, which would be greenlets."""
    patch()
    import escrowmq
    from escrowmq.testing import Broker

    with pytest.raises(escrowmq.errors.UsageError, match=r"gevent has replaced .*escrowmq serve"):
        Broker()


if __name__ == "__main__":
    SCENES[sys.argv[1]](sys.argv[2])
    sys.stdout.write("held\n")
