"""What a plain call that fails shows: the caller's line and the method, however deep it failed."""

from __future__ import annotations

import contextlib
import functools
import inspect
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import escrowmq
from escrowmq.client.blocking import admin
from escrowmq.client.blocking.face import Face
from escrowmq.errors import (
    ClientClosed,
    EscrowMQError,
    InvalidMessage,
    NoNameServer,
    TransactionBroken,
    UsageError,
)
from escrowmq.testing import Broker, delivery

MESSAGE = escrowmq.Message("T", b"1")


def frames_of(call: Callable[[], object], kind: type[EscrowMQError] = EscrowMQError) -> list[str]:
    """The functions in the traceback of a call that fails; a lambda is the caller."""
    with pytest.raises(kind) as raised:
        call()
    names = [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
    return [name for name in names[1:] if name not in ("<lambda>", "_all")]


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody listens."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{door.getsockname()[1]}"


def test_a_refused_connection_shows_two_frames_and_prints_few_lines(nobody: str) -> None:
    with escrowmq.Producer(nobody, group="g") as producer:
        assert frames_of(lambda: producer.send("T", b"1"), NoNameServer) == ["send"]
        assert frames_of(lambda: producer.send_many([MESSAGE]), NoNameServer) == ["send_many"]
        with pytest.raises(NoNameServer) as raised:
            producer.send("T", b"1")
        assert len("".join(traceback.format_exception(raised.value)).splitlines()) <= 8
        tx = producer.transaction("T", b"1")
        assert frames_of(tx.begin, NoNameServer) == ["begin"]
        assert frames_of(tx.begin, UsageError) == ["begin"]
    assert frames_of(lambda: escrowmq.Admin(nobody), NoNameServer) == ["__init__"]


def test_what_is_wrong_with_a_message_shows_two_frames(nobody: str) -> None:
    with escrowmq.Producer(nobody, group="g") as producer:
        wrong: Any = "text"
        assert frames_of(lambda: producer.send("T", wrong), InvalidMessage) == ["send"]
        assert frames_of(lambda: producer.transaction("?", b"1").begin()) == ["begin"]


PRODUCER: dict[str, Callable[[escrowmq.Producer], object]] = {
    "send": lambda p: p.send("T", b"1"),
    "flush": lambda p: p.flush(),
    "send_many": lambda p: p.send_many([MESSAGE]),
    "send_one_way": lambda p: p.send_one_way("T", b"1"),
    "recall": lambda p: p.recall("T", "x"),
    "request": lambda p: p.request("T", b"1"),
    "commit": lambda p: p.commit("x"),
    "rollback": lambda p: p.rollback("x"),
    "unsettled": lambda p: p.unsettled(),
    "unsettled_keys": lambda p: p.unsettled_keys(),
}
QUEUE = escrowmq.MessageQueue("T", "b", 0)
CONSUMER: dict[str, Callable[[escrowmq.Consumer], object]] = {
    "receive": lambda c: c.receive(1),
    "subscribe": lambda c: c.subscribe("T"),
    "unsubscribe": lambda c: c.unsubscribe("T"),
    "queues": lambda c: c.queues(),
    "pause": lambda c: c.pause(),
    "resume": lambda c: c.resume(),
    "seek": lambda c: c.seek(QUEUE, "last"),
    "position": lambda c: c.position(QUEUE),
    "committed": lambda c: c.committed(QUEUE),
    "commit": lambda c: c.commit(),
}


@pytest.fixture
def closed_producer(escrowmq_broker: Broker) -> escrowmq.Producer:
    made = escrowmq.Producer(group="g")
    made.close()
    return made


@pytest.fixture
def closed_consumer(escrowmq_broker: Broker) -> escrowmq.Consumer:
    made = escrowmq.Consumer(group="g", topic="T")
    made.close()
    return made


@pytest.mark.parametrize("name", PRODUCER)
def test_a_call_of_a_producer_shows_two_frames(
    closed_producer: escrowmq.Producer, name: str
) -> None:
    assert frames_of(lambda: PRODUCER[name](closed_producer), ClientClosed) == [name]


@pytest.mark.parametrize("name", CONSUMER)
def test_a_call_of_a_consumer_shows_two_frames(
    closed_consumer: escrowmq.Consumer, name: str
) -> None:
    assert frames_of(lambda: CONSUMER[name](closed_consumer), ClientClosed) == [name]


def test_every_call_of_an_admin_client_shows_two_frames(escrowmq_broker: Broker) -> None:
    client = escrowmq.Admin()
    client.close()
    parts = [part for part in vars(client).values() if isinstance(part, Face)]
    assert len(parts) == len(
        [
            kind
            for kind in vars(admin).values()
            if inspect.isclass(kind) and Face in kind.__mro__[1:]
        ]
    )
    for part in parts:
        for name, method in inspect.getmembers(part, inspect.ismethod):
            if name.startswith("_"):
                continue
            needed: dict[str, Any] = {
                found.name: "x"
                for found in inspect.signature(method).parameters.values()
                if found.default is found.empty and found.kind is not found.VAR_KEYWORD
            }
            given = [needed.pop(each) for each in [*needed] if _by_place(method, each)]
            call = functools.partial(_all, method, given, needed)
            assert frames_of(call, ClientClosed) == [name]


def _by_place(method: Callable[..., object], name: str) -> bool:
    kind = inspect.signature(method).parameters[name].kind
    return kind is not inspect.Parameter.KEYWORD_ONLY


def _all(method: Callable[..., Any], given: list[str], named: dict[str, str]) -> None:
    found = method(*given, **named)
    if inspect.isgenerator(found):
        next(found)


def test_the_end_of_a_block_shows_two_frames(escrowmq_broker: Broker) -> None:
    def failing(producer: escrowmq.Producer) -> None:
        with producer.transaction() as tx, contextlib.suppress(InvalidMessage):
            tx.send("T", b"")

    with escrowmq.Producer(group="g", check=lambda _: escrowmq.Outcome.ROLLBACK) as producer:
        assert frames_of(lambda: failing(producer), TransactionBroken) == ["failing", "__exit__"]


def test_what_the_users_block_raises_keeps_its_frames_and_what_it_was_raised_for(
    escrowmq_broker: Broker,
) -> None:
    def deep() -> None:
        raise KeyError("mine")

    with escrowmq.Producer(group="g", check=lambda _: escrowmq.Outcome.ROLLBACK) as producer:
        with pytest.raises(KeyError) as raised, producer.transaction("T", b"1"):
            deep()
        assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "deep"


def test_what_was_being_handled_is_told_too(closed_producer: escrowmq.Producer) -> None:
    def handles() -> None:
        try:
            raise KeyError("mine")
        except KeyError:
            closed_producer.send("T", b"1")

    with pytest.raises(ClientClosed) as raised:
        handles()
    assert isinstance(raised.value.__context__, KeyError)


def test_a_fault_keeps_all_of_its_frames(escrowmq_broker: Broker) -> None:
    """It is no error of ours, so that somebody has to find it."""

    async def fault() -> None:
        raise SystemError("strange")

    with escrowmq.Producer(group="g") as producer:
        with pytest.raises(SystemError) as raised:
            producer._portal.call(fault())
        assert traceback.extract_tb(raised.value.__traceback__)[-1].name == "fault"


def test_deciding_about_a_delivery_shows_two_frames() -> None:
    message = delivery("T", b"1")
    message.ack()
    assert frames_of(lambda: escrowmq.Delivery.retry(message), UsageError) == ["retry"]
    alone = escrowmq.Delivery("T", b"1")
    assert frames_of(alone.ack, UsageError) == ["ack"]


# -- how clients are made ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [escrowmq.Producer, escrowmq.Consumer])
def test_the_group_goes_by_its_name(kind: Any) -> None:
    with pytest.raises(TypeError, match=r"\('orders', '127.*', group='orders'\)"):
        kind("orders", "127.0.0.1:9876")
    with pytest.raises(TypeError, match="group"):
        kind("127.0.0.1:9876")


def test_a_subclass_takes_what_it_likes(nobody: str) -> None:
    class Own(escrowmq.Producer):
        def __init__(self, shop: str, address: str) -> None:
            super().__init__(address, group=shop)

    with Own("shop", nobody) as producer:
        assert producer.group == "shop"


@pytest.mark.parametrize(
    ("make", "slip", "text"),
    [
        (escrowmq.Producer, "retry", r"retry: no such setting; did you mean retries\?"),
        (escrowmq.Producer, "conect_timeout_ms", "did you mean connect_timeout_ms"),
        (escrowmq.Producer, "zzz", r"zzz: no such setting; a producer has .*timeout_ms"),
        (escrowmq.Consumer, "concurency", "did you mean concurrency"),
    ],
)
def test_a_slip_in_a_setting_is_named(make: Any, slip: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make("127.0.0.1:1", group="g", **{slip: 5})


def test_so_it_is_in_one_of_a_connection() -> None:
    slip: dict[str, Any] = {"connect_timeout": 5}
    with pytest.raises(UsageError, match="did you mean connect_timeout_ms"):
        escrowmq.Admin("127.0.0.1:1", **slip)
