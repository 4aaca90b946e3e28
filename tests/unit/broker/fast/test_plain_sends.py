"""Plain messages of v5 clients are stored at once, and mean what they mean as questions: the same
answers to everybody, the same files, the same figures."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.fast import plain_sends
from escrowmq.broker.guests import GuestClients
from escrowmq.delivery.topics import TopicConfig
from escrowmq.proxy.gen import v2
from escrowmq.testing.disk import SimDisk
from tests.harness.examples import seeds
from tests.harness.exchange import SMALL, START_MS
from tests.unit.proxy.client import V5, Stream, World, message, receiving
from tests.unit.proxy.test_accounts import SECRET, signed

NARROW = msgspec.structs.replace(
    SMALL, log_segment_size=64 * 1024, queue_segment_size=20 * 40, index_slots_count=64,
    index_entries_max=300,
)  # fmt: skip
KINDS = {
    "Orders": "", "Bills": "FIFO", "Later": "DELAY", "Paid": "TRANSACTION", "Ranked": "PRIORITY",
}  # fmt: skip
ACCOUNTS = f"""
accounts:
- {{accessKey: owner-1, secretKey: {SECRET}, topicPerms: [Orders=PUB]}}
""".encode()


class Side:
    """A broker that goes one of both ways, two v5 clients of it, and one of remoting."""

    def __init__(
        self,
        settings: BrokerSettings,
        store_settings: StoreSettings,
        metadata: dict[str, str],
        *,
        is_put: bool,
    ) -> None:
        disk = SimDisk()
        disk.small["plain_acl.yml"] = ACCOUNTS
        store_settings = msgspec.structs.replace(store_settings)
        self.world = World(settings, store_settings=store_settings, disk=disk)
        guests = self.world.front.backend
        assert isinstance(guests, GuestClients)
        assert guests.plain is not None
        self.plain = guests.plain
        if not is_put:
            guests.plain = None
        for name, kind in KINDS.items():
            config = TopicConfig(topic_name=name, read_queue_nums=4, write_queue_nums=4)
            config.attributes = {"message.type": kind} if kind else {}
            self.world.exchange.core.broker.topics.put(config, self.world.exchange.now_ms)
        self.clients = [self.world.connect(name, metadata=metadata) for name in ("one", "two")]
        self.operator = self.world.exchange.connect("operator")

    def heard(self) -> list[dict[int, tuple[bytes, dict[str, str], bool]]]:
        return [
            {number: (each.data, each.fields, each.is_over) for number, each in found.items()}
            for found in (client.streams for client in self.clients)
        ]

    def files(self) -> dict[str, bytes]:
        exchange = self.world.exchange
        exchange.core.close(exchange.now_ms)
        return {name: bytes(file.live) for name, file in exchange.disk.files.items()}


class Both:
    """The same for two brokers; whatever differs is an error at once."""

    def __init__(
        self,
        settings: BrokerSettings | None = None,
        store: StoreSettings = NARROW,
        metadata: dict[str, str] | None = None,
    ) -> None:
        settings = settings or BrokerSettings()
        self.put, self.asked = (
            Side(msgspec.structs.replace(settings), store, metadata or {}, is_put=is_put)
            for is_put in (True, False)
        )

    def do(self, act: Callable[[Side], Any]) -> None:
        for side in (self.put, self.asked):
            act(side)
        assert self.put.heard() == self.asked.heard()

    def send(self, *messages: v2.Message, client: int = 0) -> list[v2.SendMessageResponse]:
        """Each in a call of its own, all in one read; what is answered."""
        found: list[v2.SendMessageResponse] = []
        self.do(lambda side: found.extend(sent(side.clients[client], messages)))
        return found[: len(messages)]

    def end(self) -> None:
        now_ms = self.put.world.exchange.now_ms
        put, asked = (side.world.exchange.core.measure(now_ms) for side in (self.put, self.asked))
        assert put == asked
        files, expected = self.put.files(), self.asked.files()
        assert files.keys() == expected.keys()
        assert [name for name in files if files[name] != expected[name]] == []


def sent(client: V5, messages: tuple[v2.Message, ...]) -> list[v2.SendMessageResponse]:
    with client.at_once():
        streams = [
            client.start("SendMessage", v2.SendMessageRequest(messages=[one])) for one in messages
        ]
    return [one for stream in streams for one in stream.messages(v2.SendMessageResponse)]


def plain(nth: int, topic: str = "Orders", body: bytes = b"body", **system: Any) -> v2.Message:
    return message(topic, body, message_id=f"{nth:032X}", **system)


def plains(count: int, **more: Any) -> list[v2.Message]:
    return [plain(nth, **more) for nth in range(count)]


def test_messages_of_one_read_are_stored_at_once_and_nobody_sees_it() -> None:
    both = Both()
    both.send(*plains(30))  # the first of each queue are asked for
    before = both.put.plain.count
    answers = both.send(*plains(30))
    assert both.put.plain.count - before == 30
    assert {answer.status.code for answer in answers} == {v2.OK}
    assert sum(answer.entries[0].offset for answer in answers) > 30
    both.end()


def halves(count: int) -> list[v2.Message]:
    return [plain(nth, "Paid", kind=v2.TRANSACTION) for nth in range(count)]


def test_halves_of_one_read_are_stored_at_once_and_ended_by_the_ids_they_got() -> None:
    both = Both()
    both.send(*halves(6))  # the first of each queue are asked for, and so is the first key
    before = both.put.plain.count
    answers = both.send(*halves(12))
    assert both.put.plain.count - before == 12
    names = [answer.entries[0].transaction_id for answer in answers]
    assert len(set(names)) == 12

    def end(side: Side) -> None:
        for nth, name in enumerate(names):
            request = v2.EndTransactionRequest(
                topic=v2.Resource(name="Paid"), transaction_id=name, message_id=f"{nth:032X}",
                resolution=v2.COMMIT if nth % 3 else v2.ROLLBACK,
            )  # fmt: skip
            stream = side.clients[nth % 2].start("EndTransaction", request)
            (answer,) = stream.messages(v2.EndTransactionResponse)
            assert answer.status.code == v2.OK, answer

    both.do(end)
    engine = both.put.world.exchange.core.transactions.engine
    assert (engine.halves.counters.committed, len(engine.halves.pending)) == (8, 6)
    both.end()


def test_half_for_which_a_new_key_is_due_is_asked_for() -> None:
    both = Both(BrokerSettings(key_rotation_hours=1))
    both.send(*halves(6))
    both.do(lambda side: side.world.exchange.advance(3_600_000))
    before = both.put.plain.count
    both.send(*halves(1))
    assert both.put.plain.count == before
    both.send(*halves(2))
    assert both.put.plain.count == before + 2
    both.end()


def test_halves_of_two_clients_of_one_connection_are_each_its_own_clients() -> None:
    """They were entered as those of whoever sent last, who was asked about them first."""
    both = Both()
    both.send(*halves(6))
    publishers: list[set[int]] = []

    def send(side: Side) -> None:
        clients = side.world.exchange.core.broker.clients
        note, peers = clients.note_published, set[int]()

        def noted(group: str, peer: int, topic: str) -> str:
            peers.add(peer)
            return note(group, peer, topic)

        clients.note_published = noted  # type: ignore[method-assign]
        client = side.clients[0]
        with client.at_once():
            for nth in range(8):
                client.client_id = f"client-{nth // 3 % 2}"
                half = plain(nth, "Paid", kind=v2.TRANSACTION)
                client.start("SendMessage", v2.SendMessageRequest(messages=[half]))
        publishers.append(peers)

    before = both.put.plain.count
    both.do(send)
    assert both.put.plain.count - before == 8
    assert publishers[0] == publishers[1]
    assert len(publishers[0]) == 2
    both.end()


def test_clients_of_one_connection_are_stored_in_one_run() -> None:
    both = Both()
    both.send(*plains(30))

    def send(side: Side) -> None:
        client = side.clients[0]
        with client.at_once():
            for nth in range(8):
                client.client_id = f"client-{nth % 2}"
                request = v2.SendMessageRequest(messages=[plain(nth)])
                client.start("SendMessage", request)

    both.do(send)
    assert both.put.plain.count >= 8
    both.end()


def with_properties(**properties: str) -> v2.Message:
    found = plain(1)
    found.user_properties.update(properties)
    return found


def packed(body: bytes) -> v2.Message:
    found = plain(1, body=body)
    found.system_properties.body_encoding = v2.GZIP
    return found


def due(after_ms: int) -> v2.Message:
    found = plain(1, "Later")
    found.system_properties.delivery_timestamp.FromMilliseconds(START_MS + after_ms)
    return found


def born(at_ms: int) -> v2.Message:
    found = plain(1)
    found.system_properties.born_timestamp.FromMilliseconds(at_ms)
    return found


ODD: dict[str, v2.Message] = {
    "a tag": plain(1, tag="paid"),
    "keys": plain(1, keys=["a", "b"]),
    "many keys": plain(1, keys=[str(nth) for nth in range(40)]),
    "too many keys": plain(1, keys=[str(nth) for nth in range(1_000)]),
    "properties": with_properties(shop="3", colour="red"),
    "umlauts": with_properties(shop="größer"),
    "an empty property": with_properties(shop=""),
    "a property without name": with_properties(**{"": "x"}),
    "a wish of ours": with_properties(escrowDelay="true"),
    "a name of the broker's": with_properties(CLUSTER="mine"),
    "a mark of the store": with_properties(__transactionId__="mine"),
    "a level": with_properties(DELAY="3"),
    "a trace": plain(1, trace_context="00-1-2-01"),
    "a host": plain(1, born_host="shop-1"),
    "a digest": plain(1, body_encoding=v2.IDENTITY),
    "born before": born(START_MS - 7),
    "born never": born(-1),
    "packed": packed(zlib.compress(b"body " * 20)),
    "packed badly": packed(b"body"),
    "empty": plain(1, body=b""),
    "large": plain(1, body=b"x" * 60_000),
    "too large": plain(1, body=b"x" * 5_000_000),
    "no id": message("Orders", message_id=" "),
    "an odd id": message("Orders", message_id='ü"\\'),
    "a message group": plain(1, "Bills", kind=v2.FIFO, message_group="g1"),
    "another kind": plain(1, "Bills"),
    "late": due(60_000),
    "due": due(-1),
    "too late": due(900_000_000),
    "a half": plain(1, "Paid", kind=v2.TRANSACTION),
    "ranked": plain(1, "Ranked", kind=v2.PRIORITY, priority=3),
    "light": plain(1, kind=v2.LITE),
    "an unknown topic": plain(1, "Fresh"),
    "an odd topic": plain(1, "a/b"),
    "a system topic": plain(1, "SELF_TEST_TOPIC"),
    "a retry topic": plain(1, "%RETRY%readers"),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_message_among_plain_ones_makes_no_difference(name: str) -> None:
    both, odd = Both(), ODD[name]
    both.send(*plains(30))
    both.send(plain(2), odd, plain(3))
    both.send(odd, odd)
    both.send(odd, plain(4))
    assert both.put.plain.count > 0
    both.end()


def test_several_messages_of_one_call_are_asked_for_behind_what_was_put() -> None:
    both = Both()
    both.send(*plains(30))

    def send(side: Side) -> None:
        client = side.clients[0]
        with client.at_once():
            for count in (1, 3, 1, 0, 1):
                client.start("SendMessage", v2.SendMessageRequest(messages=plains(count)))
            client.start("QueryRoute", v2.QueryRouteRequest())
            client.start("SendMessage", v2.SendMessageRequest(messages=plains(1)))

    both.do(send)
    both.end()


def test_consumer_that_waits_is_given_what_was_put() -> None:
    both = Both()
    both.send(*plains(30))
    both.do(lambda side: side.clients[1].consume("CG", "Orders"))
    both.do(lambda side: side.clients[1].receive("Orders", count=32))
    both.do(lambda side: side.clients[1].receive("Orders", count=32))
    both.send(*plains(5))
    both.do(lambda side: side.clients[1].receive("Orders", count=3))
    both.end()


def test_topic_that_is_deleted_and_made_again_begins_anew() -> None:
    both = Both()
    both.send(*plains(30))
    both.do(lambda side: side.operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}))
    both.send(*plains(4))
    both.do(lambda side: side.world.topic("Orders", queues=2))
    both.send(*plains(30))
    both.send(*plains(30))
    both.end()


@pytest.mark.parametrize(
    ("settings", "store"),
    [
        (BrokerSettings(acl_enabled=True), NARROW),
        (BrokerSettings(), msgspec.structs.replace(NARROW, is_sync_flush=True)),
        (BrokerSettings(), msgspec.structs.replace(NARROW, appends_crc=True)),
    ],
)
def test_everything_is_asked_for_where_there_is_more_to_ask(
    settings: BrokerSettings, store: StoreSettings
) -> None:
    both = Both(settings, store, signed("owner-1", SECRET))
    both.send(*plains(30))
    answers = both.send(*plains(30))
    assert {each.status.code for each in answers} == {v2.OK}
    assert both.put.plain.count == 0
    both.end()


def test_everything_is_asked_for_until_sends_are_taken() -> None:
    both = Both()
    both.send(*plains(30))
    both.send(*plains(4))
    before = both.put.plain.count
    assert before > 0

    def shut(side: Side) -> None:
        exchange = side.world.exchange
        exchange.core.broker.settings.accepts_sends_from_ms = exchange.now_ms + 1_000

    both.do(shut)
    answers = both.send(*plains(4))
    assert {each.status.code for each in answers} == {v2.INTERNAL_SERVER_ERROR}
    assert both.put.plain.count == before
    both.do(lambda side: side.world.exchange.advance(1_000))
    answers = both.send(*plains(4))
    assert {each.status.code for each in answers} == {v2.OK}
    assert both.put.plain.count == before + 4
    both.end()


def test_run_is_written_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_sends, "RUN_SIZE_MAX", 1_000)
    both = Both()
    both.send(*plains(30))
    sizes: list[int] = []
    log = both.put.world.exchange.core.broker.store.log
    append = log.append

    def noting(data: bytes, stored_ms: int, **more: Any) -> None:
        sizes.append(len(data))
        append(data, stored_ms, **more)

    monkeypatch.setattr(log, "append", noting)
    both.send(*plains(10, body=b"x" * 400))
    assert [size // 1_000 for size in sizes] == [1, 1, 1, 0], "three, and one"
    both.end()


def test_shapes_of_few_topics_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_sends, "_SHAPES_MAX", 2)
    both, counts = Both(), []
    for topic in ("Second", "Third"):
        both.do(lambda side, topic=topic: side.world.topic(topic, queues=2))  # type: ignore[misc]
    for topic in ("Orders", "Second", "Orders", "Third", "Orders"):
        both.send(*plains(4, topic=topic))
        counts.append(len(both.put.plain._shapes))
    assert counts == [1, 2, 2, 1, 2]
    assert both.put.plain.count > 0
    both.end()


@pytest.mark.parametrize("seed", seeds(30))
def test_any_mixture_of_calls_and_reads_is_the_same_both_ways(seed: int) -> None:
    chance = random.Random(seed)
    both = Both()
    both.send(*plains(20))
    both.do(lambda side: side.clients[1].consume("CG", "Orders"))
    for _ in range(25):
        both.do(partial(mixed, chance.getrandbits(64)))
    assert both.put.plain.count > 0
    both.end()


def mixed(seed: int, side: Side) -> None:
    """A read of one client, or something of the operator's, or time that passes."""
    chance = random.Random(seed)
    draw = chance.random()
    if draw < 0.05:
        topic = chance.choice([*KINDS])
        side.operator.ask(Request.DELETE_TOPIC_IN_BROKER, {"topic": topic})
    elif draw < 0.1:
        topic = chance.choice([*KINDS])
        side.world.topic(topic, KINDS[topic], queues=chance.choice([1, 4, 6]))
    elif draw < 0.2:
        side.world.exchange.advance(chance.choice([1, 5, 700, 11_000]))
    else:
        client = chance.choice(side.clients)
        with client.at_once():
            for _ in range(chance.randrange(1, 30)):
                call(client, chance)


def call(client: V5, chance: random.Random) -> Stream | None:
    draw = chance.random()
    if draw < 0.7:
        found = plain(chance.getrandbits(96), body=b"x" * chance.randrange(1, 400))
        if chance.random() < 0.3:
            found.system_properties.tag = chance.choice(["x", "y"])
        if chance.random() < 0.3:
            found.system_properties.keys.extend(chance.choices(["a", "b", "cc"], k=3))
        if chance.random() < 0.2:
            found.user_properties[chance.choice(["p", "q"])] = chance.choice(["1", "zwölf"])
        return client.start("SendMessage", v2.SendMessageRequest(messages=[found]))
    if draw < 0.85:
        odd = chance.choice([one for name, one in ODD.items() if not name.startswith("too")])
        return client.start("SendMessage", v2.SendMessageRequest(messages=[odd]))
    if draw < 0.9:
        several = plains(chance.randrange(4))
        return client.start("SendMessage", v2.SendMessageRequest(messages=several))
    if draw < 0.95:
        return client.start("ReceiveMessage", receiving("Orders", count=chance.randrange(1, 9)))
    return client.start("QueryRoute", v2.QueryRouteRequest(topic=v2.Resource(name="Orders")))
