"""The fast path means what the general path means: the same bytes to everybody, the same files, the
same figures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.broker.fast import fast_puts
from escrowmq.codec.command import encode_command
from escrowmq.codec.frame import FrameReader
from tests.harness.examples import seeds
from tests.unit.broker.both import (
    HALF,
    PLAIN,
    START_MS,
    TOPICS,
    Begun,
    Both,
    Chunk,
    Side,
    Watched,
    begun_of,
    end,
    fields,
    frame,
    half,
    pull,
    send,
)
from tests.unit.broker.fast.test_fast_batches import batch, entry


@pytest.mark.parametrize("is_binary", [True, False])
def test_plain_messages_are_served_the_short_way_and_nobody_sees_it(*, is_binary: bool) -> None:
    both = Both()
    one = send(is_binary=is_binary)
    both.feed((1, one), (1, one), (1, one * 5), (2, one + send(opaque=8, is_binary=is_binary)))
    assert both.fast.served_count == 8  # all but the first, which makes the queue
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_a_half_whose_sender_wants_a_transaction_id_is_told_one(*, is_binary: bool) -> None:
    both = Both()

    def wanted(number: int, wish: str = "true") -> bytes:
        return send(
            {**HALF, "UNIQ_KEY": f"{number:032X}"}, f="4", is_binary=is_binary, opaque=number,
            escrowWantsId=wish,
        )  # fmt: skip

    both.feed((1, wanted(1)), (1, wanted(2)))  # the general path: of a queue, of a connection
    before = both.fast.served_count
    told = both.feed((1, wanted(3) + wanted(4)), (1, wanted(5)))
    assert both.fast.served_count - before == 3
    assert all("escrowId" in (reply.ext or {}) for reply in told)
    assert "escrowId" not in (both.feed((1, wanted(6, "1")))[-1].ext or {})
    both.pass_time(90 * 24 * 3_600_000)  # a new key is due, which the general path makes
    assert "escrowId" in (both.feed((1, wanted(7)))[-1].ext or {})
    both.end()


ODD: dict[str, bytes] = {
    "no properties": send(""),
    "no unique key": send({"WAIT": "true"}),
    "a name twice": send("UNIQ_KEY\x01a\x02x\x011\x02x\x012\x02"),
    "an entry without value": send("UNIQ_KEY\x01a\x02x\x01\x02"),
    "an entry without name": send("UNIQ_KEY\x01a\x02\x011\x02"),
    "two values": send("UNIQ_KEY\x01a\x01b\x02"),
    "separators swapped": send("UNIQ_KEY\x02a\x01WAIT\x01true\x02"),
    "no last separator": send("UNIQ_KEY\x01a\x02WAIT\x01true"),
    "two last separators": send("UNIQ_KEY\x01a\x02WAIT\x01true\x02\x02"),
    "umlauts": send({**PLAIN, "x": "größer"}),
    "umlauts in the key": send({"UNIQ_KEY": "ü"}),
    "a quote in the key": send({"UNIQ_KEY": 'a"b\\c'}),
    "a zero at the end": send({**PLAIN, "x": "y\0"}),
    "no body": send(body=b""),
    "a level": send({**PLAIN, "DELAY": "3"}),
    "a delivery time": send({**PLAIN, "TIMER_DELAY_SEC": "60"}),
    "a half": send({**PLAIN, "TRAN_MSG": "true", "PGROUP": "load"}, f="4"),
    "a hidden message": send(f="4"),
    "a commit": send(f="8"),
    "compressed": send(f="1"),
    "odd flags": send(f="4096"),
    "negative flag": send(h="-5"),
    "flag": send(h="77"),
    "tried again": send(j="3"),
    "a mark of the store": send({**PLAIN, "__CRC32#": "1"}),
    "a mark of a consumer": send({**PLAIN, "RETRY_TOPIC": "Other"}),
    "what the broker adds": send({**PLAIN, "MSG_REGION": "mine", "CLUSTER": "mine"}),
    "one key": send({**PLAIN, "KEYS": "a"}),
    "keys": send({**PLAIN, "KEYS": "a  b a"}),
    "many keys": send({**PLAIN, "KEYS": " ".join(map(str, range(40)))}),
    "a tag": send({**PLAIN, "TAGS": "created"}),
    "one way": send(flag=2),
    "a reply": send(flag=1),
    "queue beyond": send(e="99"),
    "any queue": send(e="-1"),
    "queue with a zero": send(e="00"),
    "queue in words": send(e="one"),
    "no queue": send(e="-"),
    "born long ago": send(g="0"),
    "born never": send(g="never"),
    "born late": send(g="9" * 18),
    "born too late": send(g="9" * 19),
    "unit mode in words": send(k="fa9se"),
    "queues of a new topic in words": send(d="4x"),
    "tried at most in words": send(l="often"),
    "tried at most": send(l="16"),
    "a batch in words": send(m="yes"),
    "no topic": send(topic="-"),
    "an unknown topic": send(topic="Fresh"),
    "an odd topic": send(topic="a/b"),
    "a system topic": send(topic="SELF_TEST_TOPIC"),
    "a retry topic": send(topic="%RETRY%readers"),
    "a batch that is none": send(m="true"),
    "version 1": frame(
        Request.SEND_MESSAGE,
        {"producerGroup": "g", "topic": "Orders", "queueId": "0", "sysFlag": "0", "i": "",
         "bornTimestamp": "1", "properties": "UNIQ_KEY\x01a\x02"}, b"x",
    ),
    "many fields": frame(
        Request.SEND_MESSAGE_V2, fields("UNIQ_KEY\x01a\x02") | {f"z{n}": "1" for n in range(499)},
        b"x", is_binary=False,
    ),
    "too many fields": frame(
        Request.SEND_MESSAGE_V2, fields("UNIQ_KEY\x01a\x02") | {f"z{n}": "1" for n in range(600)},
        b"x", is_binary=False,
    ),
    "a second code": send(is_binary=False).replace(b'"flag":0', b'"code":11'),
    "a number beyond": b"\0\0\0\x45\0\0\0\x41" + (
        b'{"code":310,"extFields":{"b":"Orders","e":"0"},"opaque":9999999999}'[:65].ljust(65)
    ),
    "no frame": b"\0\0\0\x02\xff\xff\xff\xff1234567890",
}  # fmt: skip


@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("name", ODD)
def test_odd_message_among_plain_ones_makes_no_difference(name: str, *, is_binary: bool) -> None:
    both, plain = Both(), send(is_binary=is_binary)
    odd = ODD[name]
    if not is_binary and name != "no frame":
        odd = _in_json(odd)
    both.feed((1, plain), (1, plain))
    both.feed((1, plain + odd + plain), (1, odd), (1, odd + odd), (1, plain))
    assert both.fast.served_count > 0
    both.end()


def test_properties_that_reach_into_the_body_make_no_difference() -> None:
    ext = fields("UNIQ_KEY\x01a")
    properties = ext["i"] = ext.pop("i")  # the last field: nothing stands behind it in the header
    plain = frame(Request.SEND_MESSAGE_V2, ext, b"body")
    begin = plain.index(properties.encode()) - 4
    size = len(properties) + 2
    longer = plain[:begin] + size.to_bytes(4, "big") + plain[begin + 4 :]
    both = Both()
    both.feed((1, plain), (1, plain), (1, plain))
    assert both.fast.served_count > 0
    both.feed((1, longer))
    both.end()


def _in_json(data: bytes) -> bytes:
    found = FrameReader().read_commands(data)
    for command in found:
        command.is_binary = False
    return b"".join(map(encode_command, found))


@pytest.mark.parametrize("name", ["c", "unknown"])
@pytest.mark.parametrize("is_binary", [True, False])
def test_send_with_bytes_that_are_no_text_is_broken_every_way(
    name: str, *, is_binary: bool
) -> None:
    """Also where nobody asks what they say."""
    both = Both()
    changed: dict[str, Any] = {name: "marked"}
    frames = [send(is_binary=is_binary, **changed) for _ in range(4)]
    frames[3] = frames[3].replace(b"marked", b"mark\xffd")
    both.feed((1, frames[0]), (1, frames[1]), (1, b"".join(frames[2:])))
    assert len(both.fast.closed) == 1
    both.end()


def test_reader_who_waits_is_told_and_messages_of_other_queues_wake_nobody() -> None:
    both = Both()
    both.feed((1, send()), (2, pull(1)))
    both.feed((1, send(e="1")), (1, send(e="1")), (1, send() * 3), (2, pull(4)), (1, send()))
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_senders_that_want_no_answer_are_counted_alone(*, is_binary: bool) -> None:
    both, one = Both(), send(flag=2, is_binary=is_binary)
    both.feed((1, one), (1, one), (1, one * 3))
    assert both.fast.served_count == 4
    both.end()


def test_a_sender_that_need_not_wait_is_served_the_short_way_where_nobody_waits() -> None:
    both, one = Both(), send({**PLAIN, "WAIT": "false"})
    both.feed((1, one), (1, one), (1, one * 3))
    assert both.fast.served_count == 4
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_longest_frame_of_a_peer_is_served_and_a_longer_one_on_no_path(*, is_binary: bool) -> None:
    both, one = Both(), send(is_binary=is_binary)
    both.feed((1, one), (1, one), (1, one))
    before = both.fast.served_count
    for side in both.sides:
        dialogue: Any = side.core.broker.peers.by_id[1].dialogue
        dialogue.reader.frame_size_max = len(one)
    both.feed((1, one))
    assert both.fast.served_count == before + 1
    both.feed((1, send(body=b"longer", is_binary=is_binary)))
    assert [peer for peer, _ in both.fast.closed] == [1]
    both.end()


@pytest.mark.parametrize("is_binary", [True, False])
def test_connection_earns_with_served_requests_what_it_may_teach(*, is_binary: bool) -> None:
    side = Side(is_fast=True)
    one = send(is_binary=is_binary)
    for _ in range(3):
        side.feed((1, one))
    side.heard.clear()
    side.feed((1, b"".join(half(number, is_binary=is_binary) for number in range(8))))
    ends = [
        end(one, flag=0, is_binary=is_binary)
        for one in begun_of(b"".join(data for _, data in side.heard))
    ]
    side.feed((1, ends.pop()))
    dialogue: Any = side.core.broker.peers.by_id[1].dialogue
    for data, count in ((one * 5, 5), (b"".join(ends), len(ends))):
        dialogue._known.credit = 1
        side.feed((1, data))
        assert dialogue._known.credit == 1 + count


def test_ends_that_take_the_general_path_each_time_are_tried_less_and_less() -> None:
    side = Side(is_fast=True)
    for data in (send(), half(0), half(1)):
        side.feed((1, data))
    (*_, ended) = begun_of(b"".join(data for _, data in side.heard))
    lane = Watched(side)
    for _ in range(40):
        side.feed((1, end(ended, flag=0)))
    assert 0 < len(lane.calls["find_ends"]) <= 10


def test_few_queues_groups_and_texts_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_TARGETS_MAX", "_GROUPS_MAX", "_UNNAMED_MAX"):
        monkeypatch.setattr(fast_puts, name, 2)
    both = Both()
    fast_path = both.fast.core.remoting.fast_path
    assert fast_path is not None
    puts = fast_path._puts
    for _ in range(2):
        for number in "0123":
            sent = send(e=number)
            transacted = send({**HALF, "PGROUP": f"group-{number}"}, f="4", e=number)
            packed = batch([entry(1)], own=f"WAIT\x01true\x02a\x01{number}\x02", e=number)
            both.feed((1, sent * 2), (1, transacted * 2), (1, packed * 2))
            held = puts._targets, puts._groups, puts._unnamed
            assert max(map(len, held)) <= 2
    assert both.fast.served_count > 10
    both.end()


WITHOUT: dict[str, dict[str, Any]] = {
    "clients that have IPv6": {"peers": "fd00::9"},
    "a broker that has IPv6": {"address": "fd00::1"},
    "no lane": {},
}


@pytest.mark.parametrize("name", WITHOUT)
def test_fast_path_is_not_even_tried_with(name: str) -> None:
    both = Both(**WITHOUT[name])
    fast_path = both.fast.core.remoting.fast_path
    assert fast_path is not None
    if name == "no lane":
        fast_path.lane = None
    both.feed((1, send()), (1, send()), (1, send() * 3))
    assert both.fast.served_count == 0
    both.end()


def test_answers_to_one_input_leave_in_one_write() -> None:
    side = Side(is_fast=True)
    side.feed((1, send()))
    side.feed((1, send()))
    written: list[bytes] = []
    side.core.set_writer(lambda _, chunks: written.append(b"".join(chunks)))
    side.feed((1, send(opaque=4) * 2))
    assert len(written) == 1, "at once, as nothing else is answered"
    side.heard.clear()
    side.feed((1, send(opaque=5) + send({**PLAIN, "DELAY": "3"}, opaque=6) + send(opaque=7)))
    assert len(written) == 1
    ((_, told),) = side.heard
    assert [reply.opaque for reply in FrameReader().read_commands(told)] == [5, 6, 7]


def test_topic_that_is_deleted_and_made_again_begins_anew() -> None:
    both = Both()
    both.feed((1, send()), (1, send() * 3))
    both.feed((2, frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"})))
    both.feed((1, send() * 2), (1, send() * 2), (2, pull(0)))
    both.end()


def test_segments_and_queue_files_that_end_in_a_run_are_no_border() -> None:
    both = Both()
    large = send(body=b"x" * 3_000)
    for _ in range(12):
        both.feed((1, large * 7), (2, send(e="2") * 30))
    assert both.fast.served_count > 300
    both.end()


def test_operator_who_changes_what_senders_are_told_is_heeded_at_once() -> None:
    both = Both()
    both.feed((1, send()), (1, send() * 2))
    both.feed((2, frame(Request.UPDATE_BROKER_CONFIG, {}, b"traceOn=false")), (1, send() * 2))
    both.end()


@pytest.mark.parametrize("settings", [{"acl_enabled": True}, {"rejects_transactions": True}])
def test_fast_path_is_shut_where_everybody_is_judged(settings: dict[str, object]) -> None:
    both = Both(**settings)
    both.feed((1, send()), (1, send() * 3))
    assert (both.fast.served_count == 0) == ("acl_enabled" in settings)
    both.end()


@pytest.mark.parametrize("seed", seeds(40))
def test_any_mixture_of_requests_and_reads_is_the_same_both_ways(seed: int) -> None:
    chance = random.Random(seed)
    both = Both()
    begun: list[Begun] = []
    for peer, data in _mixture(chance, begun):
        _note(begun, both.feed((peer, data)))
        if chance.random() < 0.1:
            both.forget()
        if chance.random() < 0.1:
            both.pass_time(chance.choice([1, 5, 700, 11_000]))
    assert both.fast.served_count > 0
    both.end()


@pytest.mark.parametrize("seed", seeds(60))
def test_any_mixture_is_the_same_where_senders_wait_for_the_disk(seed: int) -> None:
    """Syncs take their time, some longer than anybody waits, some fail; connections are lost."""
    chance = random.Random(seed)
    both = Both(is_sync_flush=True)
    begun: list[Begun] = []
    is_slow = False
    both.hold_syncs()
    for peer, data in _mixture(chance, begun, 200):
        if chance.random() < 0.1:
            is_slow = not is_slow
        if chance.random() < 0.3:
            both.mend()
        _note(begun, both.feed((peer, data)))
        draw = chance.random()
        if both.is_syncing and draw < (0.1 if is_slow else 0.6):
            _note(begun, both.let_sync())
        elif both.is_syncing and draw < 0.61:
            both.fail_sync()
        elif draw < 0.7:
            both.forget()
        elif draw < 0.72:
            both.lose(peer)
        elif draw < 0.85:
            _note(begun, both.pass_time(chance.choice([1, 5, 700, 1_300, 5_000, 11_000])))
    while both.is_syncing:
        both.let_sync()
    # How much goes which way is held by test_run_answers: after an early failure it may be nothing.
    both.end()


def _note(begun: list[Begun], replies: list[Command]) -> None:
    for reply in replies:
        ext = reply.ext or {}
        if "transactionId" in ext:
            place = int(ext["queueOffset"]), int(ext["msgId"][16:], 16)
            begun.append(Begun(*place, ext["transactionId"]))


def _mixture(chance: random.Random, begun: list[Begun], count: int = 120) -> Iterator[Chunk]:
    """Requests of two connections, cut anywhere; ends of what was sent, halves or not."""
    waiting = {1: b"", 2: b""}
    odd = [data for name, data in ODD.items() if name not in ("no frame", "too many fields")]
    for number in range(count):
        peer = chance.choice([1, 2])
        draw = chance.random()
        if draw < 0.25 and begun:
            one = chance.choice(begun[-8:])
            verdict = chance.choice(["8", "8", "8", "12", "0"])
            data = end(one, verdict, flag=chance.choice([0, 2, 2]), is_binary=chance.random() < 0.5)
        elif draw < 0.75:
            is_half = chance.random() < 0.5
            properties = dict(HALF if is_half else PLAIN) | {
                "UNIQ_KEY": f"{chance.getrandbits(96):032X}"
            }
            if chance.random() < 0.3:
                properties["KEYS"] = " ".join(chance.choices(["a", "b", "", "cc"], k=3))
            if chance.random() < 0.3:
                properties["TAGS"] = chance.choice(["x", "y"])
            if chance.random() < 0.15:
                properties["WAIT"] = "false"
            if chance.random() < 0.3:
                properties[chance.choice(["p", "q"])] = chance.choice(["1", "zwölf", "x y"])
            wish = chance.choice(["true", "true", "1"]) if chance.random() < 0.3 else "-"
            data = send(
                properties, b"x" * chance.randrange(400), topic=chance.choice(TOPICS),
                opaque=number, is_binary=chance.random() < 0.6, flag=chance.choice([0, 0, 0, 2]),
                e=str(chance.randrange(4)), f="4" if is_half else "0", g=str(START_MS + number),
                escrowWantsId=wish,
            )  # fmt: skip
        elif draw < 0.85:
            data = chance.choice(odd)
        elif draw < 0.95:
            data = pull(chance.randrange(30), queue_id=chance.randrange(4), opaque=1_000 + number)
        else:
            data = frame(Request.DELETE_TOPIC_IN_BROKER, {"topic": chance.choice(TOPICS)})
        waiting[peer] += data
        if chance.random() < 0.4:
            cut = chance.choice([len(waiting[peer]), chance.randrange(len(waiting[peer]) + 1)])
            yield peer, waiting[peer][:cut]
            waiting[peer] = waiting[peer][cut:]
    for peer, data in waiting.items():
        yield peer, data


MESSAGE, SILENT = send(opaque=50), send(opaque=51, flag=2)
LATER = send({**PLAIN, "DELAY": "3"}, opaque=52)
"""Takes the general path."""

TOGETHER: dict[str, tuple[list[bytes | None], bool]] = {
    "a message and an END": ([MESSAGE, None], True),
    "a message that wants no answer": ([SILENT, None], False),
    "two messages": ([MESSAGE, MESSAGE, None], False),
    "two ENDs": ([MESSAGE, None, None], False),
    "an END first": ([None, MESSAGE, None], False),
    "a batch": ([batch([entry(1)]), MESSAGE, None], False),
    "something special first": ([LATER, MESSAGE, None], False),
    "more behind the END": ([MESSAGE, None, MESSAGE], False),
}
"""Requests of one input, of which None is an END; and whether the message is written by itself."""


@pytest.mark.parametrize("is_sync_flush", [False, True])
@pytest.mark.parametrize("name", TOGETHER)
def test_message_is_written_before_the_end_that_came_with_it(
    name: str, monkeypatch: pytest.MonkeyPatch, *, is_sync_flush: bool
) -> None:
    """Its sender is answered before the work for the END: only where it waits for nothing else."""
    frames, is_cut = TOGETHER[name]
    side = Side(is_fast=True, is_sync_flush=is_sync_flush)
    for data in (MESSAGE, MESSAGE, SILENT, *[batch([entry(0)])] * 2):
        side.feed((1, data))
    side.heard.clear()
    for number in range(4):
        side.feed((1, half(number)))
    first, *halves = begun_of(b"".join(data for _, data in side.heard))
    side.feed((1, end(first, flag=0)))
    order = []
    lane, log = Watched(side), side.core.broker.store.log
    append = log.append

    def note_append(data: bytes, stored_ms: int, **more: Any) -> None:
        order.append(len(lane.calls["find_ends"]))
        append(data, stored_ms, **more)

    monkeypatch.setattr(log, "append", note_append)
    written: list[int] = []
    side.core.set_writer(lambda *_: written.append(len(lane.calls["find_ends"])))
    side.feed((1, b"".join(data or end(halves.pop(), flag=0) for data in frames)))
    assert lane.calls["find_ends"], "the fast path serves the END"
    assert (order[0] == 0) == ((is_cut and not is_sync_flush) or frames[0] == LATER)
    assert (0 in written) == (is_cut and not is_sync_flush)
    runs_count = 2 if (is_cut and not is_sync_flush) or frames[0] == LATER else 1
    assert len(order) == runs_count, "everything else is written at once"
    if frames[0] == LATER:
        assert order[1] > 0, "the other message is written with the END"
