"""Batches that are too long for one turn: read part by part, and stored whole."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.command import Command
from escrowmq.base.effects import Hold, Send
from escrowmq.base.fixed_limits import (
    BATCH_KEYS_MAX,
    BATCH_MESSAGES_MAX,
    BATCH_PART_COUNT,
    KEYS_AT_ONCE_MAX,
    MESSAGE_KEYS_MAX,
    REPLY_HEADER_SIZE_MAX,
)
from escrowmq.codec.batch_body import encode_batch
from escrowmq.codec.command import encode_request
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.ids import parse_offset_id
from tests.harness.exchange import SMALL, Exchange

LARGE = msgspec.structs.replace(
    SMALL,
    log_segment_size=1 << 23,
    queue_segment_size=20 * 65_536,
    index_slots_count=4096,
    index_entries_max=200_000,
)
COUNT = 2_777


class Slow:
    """The sender of a long batch whose turns a test gives one by one."""

    def __init__(self, *, is_one_way: bool = False, tail: bytes = b"", topic: str = "T") -> None:
        self.exchange = Exchange(store_settings=LARGE)
        self.exchange.create_topic("T")
        self.sender, self.other = self.exchange.connect(), self.exchange.connect()
        self._reader = FrameReader(header_size_max=REPLY_HEADER_SIZE_MAX)
        self.replies: list[Command] = []
        self.turns_count = 0
        body = encode_batch(
            [(0, b"%05d" % n, f"UNIQ_KEY\x01U{n}\x02".encode()) for n in range(COUNT)]
        )
        ext = {"a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1",
               "h": "0", "i": "UNIQ_KEY\x01B\x02", "j": "0", "k": "false", "m": "true"}  # fmt: skip
        batch = encode_request(320, 1, ext=ext, body=body + tail, is_one_way=is_one_way)
        single = encode_request(310, 2, ext=ext | {"m": "false"}, body=b"behind")
        self.is_held = self.turn(batch + single)

    def turn(self, data: bytes = b"") -> bool:
        """Whether there is more to do for this sender."""
        core = self.exchange.core
        core.receive(self.sender.id, data, self.exchange.now_ms)
        self.turns_count += 1
        effects = core.take_effects()
        for effect in effects:
            if isinstance(effect, Send):
                assert effect.peer == self.sender.id
                self.replies += self._reader.read_commands(b"".join(effect.chunks))
        return Hold(self.sender.id) in effects

    def finish(self) -> list[Command]:
        while self.is_held:
            self.is_held = self.turn()
        self.exchange.advance(1_000)
        return self.replies

    def bodies(self) -> list[bytes]:
        return self.other.bodies("T")


def test_others_are_served_between_the_parts_of_a_long_batch_and_its_offsets_are_consecutive() -> (
    None
):
    slow = Slow()
    others = []
    while slow.is_held:
        assert slow.other.send("T", b"other", queue_id=0).code == 0
        others.append(slow.turns_count)
        slow.is_held = slow.turn()
    batch, single = slow.finish()
    assert len(others) > COUNT // BATCH_PART_COUNT - 2
    assert (batch.code, single.code) == (0, 0)
    first = int((batch.ext or {})["queueOffset"])
    found = slow.bodies()
    assert found[first : first + COUNT] == [b"%05d" % n for n in range(COUNT)]
    assert len(found) == COUNT + len(others) + 1
    assert found[int((single.ext or {})["queueOffset"])] == b"behind"
    assert int((single.ext or {})["queueOffset"]) >= first + COUNT
    ids = (batch.ext or {})["msgId"].split(",")
    places = [m.log_offset for m in slow.other.messages("T")][first : first + COUNT]
    assert [parse_offset_id(text)[1] for text in ids] == places
    assert (batch.ext or {})["transactionId"] == "B"


@pytest.mark.parametrize(
    ("tail", "code"),
    [
        (encode_batch([(0, b"half", b"TRAN_MSG\x01true\x02")]), 13),
        (encode_batch([(0, b"marked", b"TIMER_DEL_UNIQKEY\x01x\x02")]), 13),
        (encode_batch([(0, b"large", b"k\x01" + b"v" * 40_000 + b"\x02")]), 13),
        (b"\0\0\0\x09cut", 1),
    ],
)
def test_long_batch_with_one_bad_message_is_refused_and_nothing_of_it_stored(
    tail: bytes, code: int
) -> None:
    slow = Slow(tail=tail)
    batch, single = slow.finish()
    assert (batch.code, single.code) == (code, 0)
    assert slow.bodies() == [b"behind"]


def test_long_batch_of_a_sender_that_leaves_before_it_was_read_is_not_stored() -> None:
    slow = Slow()
    slow.turn()
    slow.sender.leave()
    slow.exchange.advance(1_000)
    assert slow.bodies() == []


def test_long_batch_whose_topic_is_deleted_meanwhile_makes_it_again_or_is_refused() -> None:
    for makes_topics in (True, False):
        slow = Slow()
        slow.exchange.core.broker.topics.delete("T", slow.exchange.now_ms)
        slow.exchange.core.broker.settings.creates_topics = makes_topics
        assert slow.finish()[0].code == (0 if makes_topics else 17)


def test_long_one_way_batch_is_stored_and_not_answered() -> None:
    slow = Slow(is_one_way=True)
    assert [reply.opaque for reply in slow.finish()] == [2]
    assert len(slow.bodies()) == COUNT + 1


def test_batch_of_more_messages_than_any_client_writes_is_refused() -> None:
    tail = encode_batch([(0, b"x", b"")] * (BATCH_MESSAGES_MAX - COUNT + 1))
    slow = Slow(tail=tail)
    batch, _ = slow.finish()
    assert batch.code == 13
    assert batch.remark == f"a batch of more than {BATCH_MESSAGES_MAX} messages; send it in parts"
    assert slow.bodies() == [b"behind"]


def test_sender_of_a_long_batch_who_then_breaks_the_protocol_is_answered_and_closed() -> None:
    slow = Slow()
    core = slow.exchange.core
    core.receive(slow.sender.id, b"\xff" * 8, slow.exchange.now_ms)
    slow.is_held = Hold(slow.sender.id) in core.take_effects()
    assert slow.is_held
    assert [reply.code for reply in slow.finish()] == [0, 0]


def keyed(count: int, keys_count: int) -> tuple[Exchange, Command]:
    """A batch of messages with so many keys each, and its reply."""
    exchange = Exchange(store_settings=LARGE)
    exchange.create_topic("T")
    keys = " ".join(f"k{n}" for n in range(keys_count))
    own = f"KEYS\x01{keys}\x02UNIQ_KEY\x01U\x02".encode()
    ext = {"b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "m": "true"}
    body = encode_batch([(0, b"%d" % n, own) for n in range(count)])
    return exchange, exchange.connect().ask(320, ext, body)


def test_batch_of_few_messages_with_many_keys_takes_many_turns() -> None:
    exchange, reply = keyed(30, MESSAGE_KEYS_MAX)
    assert reply.code == 0
    assert exchange.holds_count > 30 * MESSAGE_KEYS_MAX // (KEYS_AT_ONCE_MAX + MESSAGE_KEYS_MAX)
    exchange.advance(1_000)
    found = exchange.connect().messages("T")
    assert [message.body for message in found] == [b"%d" % n for n in range(30)]


def test_batch_with_too_many_keys_in_all_is_refused() -> None:
    exchange, reply = keyed(BATCH_KEYS_MAX // MESSAGE_KEYS_MAX + 1, MESSAGE_KEYS_MAX)
    assert (reply.code, reply.remark) == (
        13, f"a batch with more than {BATCH_KEYS_MAX} keys; send it in parts",
    )  # fmt: skip
    assert exchange.connect().messages("T") == []


def test_sends_with_many_keys_that_came_together_are_served_in_turns() -> None:
    exchange = Exchange(store_settings=LARGE)
    exchange.create_topic("T")
    keys = " ".join(f"k{n}" for n in range(MESSAGE_KEYS_MAX))
    ext = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0",
           "i": f"KEYS\x01{keys}\x02", "j": "0", "k": "false", "m": "false"}  # fmt: skip
    frames = [encode_request(310, n, ext=ext, body=b"x", is_one_way=True) for n in range(64)]
    exchange.feed(exchange.connect(), b"".join(frames))
    assert exchange.holds_count == 63
    assert len(exchange.connect().messages("T")) == 64
