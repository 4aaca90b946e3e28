"""Pulls that are served the short way, and what must not be: both ways give the same replies, keep
the same files and count the same."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.reads.pull_rules import PullFlag
from escrowmq.codec.frame import FrameReader
from escrowmq.codec.record import decode_records
from escrowmq.errors import StorageError
from tests.harness.examples import seeds
from tests.unit.broker.both import START_MS, Both, Chunk, Side, frame, send

QUEUES = 4
PULLS = (Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE)


def pull(
    offset: int, *, code: int = Request.PULL_MESSAGE, group: str = "readers",
    topic: str = "Orders", queue_id: int = 0, count: int = 32,
    flags: int = PullFlag.COMMIT_OFFSET | PullFlag.SUBSCRIPTION, commit: int = 0, wanted: str = "*",
    opaque: int = 9, flag: int = 0, is_binary: bool = True, **more: str,
) -> bytes:  # fmt: skip
    ext = {
        "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": str(count), "sysFlag": str(flags),
        "commitOffset": str(commit), "suspendTimeoutMillis": "15000", "subscription": wanted,
        "subVersion": "7", "expressionType": "TAG",
    } | more  # fmt: skip
    return frame(code, ext, opaque=opaque, flag=flag, is_binary=is_binary)


def heartbeat(
    *, model: str = "CLUSTERING", wanted: str = "*", version: int = 7, topic: str = "Orders"
) -> bytes:
    subscription = {
        "topic": topic, "subString": wanted, "subVersion": version, "expressionType": "TAG",
        "tagsSet": [], "codeSet": [], "classFilterMode": False,
    }  # fmt: skip
    consumer = {
        "groupName": "readers", "consumeType": "CONSUME_PASSIVELY", "messageModel": model,
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET", "unitMode": False,
        "subscriptionDataSet": [subscription],
    }  # fmt: skip
    body = {"clientID": "one", "producerDataSet": [], "consumerDataSet": [consumer]}
    return frame(Request.HEART_BEAT, {}, msgspec.json.encode(body))


def sends(count: int, chance: random.Random | None = None) -> bytes:
    chance = chance or random.Random(3)
    return b"".join(
        send(
            {"UNIQ_KEY": f"0A000001ABCD18B4AAC20000{chance.randrange(1 << 32):08X}",
             "TAGS": chance.choice("ab")},
            b"x" * chance.randrange(1, 200), e=str(chance.randrange(QUEUES)),
        )
        for _ in range(count)
    )  # fmt: skip


def served(both: Both) -> int:
    pulls = both.fast.core.remoting.pulls
    assert pulls is not None
    return pulls.served_count


def filled() -> Both:
    both = Both()
    both.feed((1, sends(60)))
    return both


def bodies_count(reply: Command) -> int:
    return len(list(decode_records(reply.body)))


def test_pulls_that_are_repeated_are_served_the_short_way_and_nobody_sees_it() -> None:
    both = filled()
    for at in range(6):
        (reply,) = both.feed((1, pull(at, commit=at, count=2)))
        assert reply.remark == "FOUND"
        assert bodies_count(reply) == 2
    # The first was learnt from, and what it was judged by is remembered since then.
    assert served(both) == 5
    (told,) = both.feed(operator(Request.GET_CONSUME_STATS, {"consumerGroup": "readers"}))
    assert b'"pullOffset":7' in told.body
    both.end()


@pytest.mark.parametrize("is_known", [True, False], ids=["known", "new"])
def test_if_no_more_offsets_are_kept_only_groups_without_one_are_refused(
    monkeypatch: pytest.MonkeyPatch, is_known: bool
) -> None:
    both = filled()
    flags = PullFlag.SUBSCRIPTION | (PullFlag.COMMIT_OFFSET if is_known else 0)
    both.feed((1, heartbeat()), (1, pull(0, count=2, flags=flags)))
    both.feed((1, pull(1, count=2, flags=flags)))
    assert served(both) == 1
    both.feed((2, pull(0, group="others", commit=1)))
    monkeypatch.setattr(fixed_limits, "OFFSETS_MAX", 0)
    both.pass_time(60_000)
    both.feed((1, heartbeat()), (1, pull(2, count=2, flags=flags)))
    (reply,) = both.feed((1, pull(3, count=2, flags=flags)))
    assert reply.code == (Response.SUCCESS if is_known else Response.SYSTEM_ERROR)
    assert served(both) == (2 if is_known else 1)
    both.end()


@pytest.mark.parametrize("left_out", ["commitOffset", "suspendTimeoutMillis"])
def test_pulls_without_a_field_that_may_be_left_out_make_no_difference(left_out: str) -> None:
    both = filled()
    header = {
        "consumerGroup": "readers", "topic": "Orders", "queueId": "0", "queueOffset": "0",
        "maxMsgNums": "32", "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0",
        "subscription": "*", "expressionType": "TAG",
    }  # fmt: skip
    del header[left_out]
    for offset in "012":
        data = frame(Request.PULL_MESSAGE, header | {"queueOffset": offset})
        both.feed((2, data), (2, data * 2))
    both.end()


def test_pulls_of_one_read_and_other_requests_between_them_are_answered_in_order() -> None:
    both = filled()
    both.feed((1, heartbeat() + pull(0, count=2)))
    read = b"".join(
        [pull(n, count=2, opaque=100 + n) + sends(1) + heartbeat() for n in range(1, 6)]
    )
    replies = both.feed((1, read))
    assert [r.opaque for r in replies if r.opaque >= 100] == list(range(101, 106))
    assert served(both) == 5
    both.end()


def test_pull_that_comes_alone_is_answered_at_once_and_others_in_their_order() -> None:
    both = filled()
    both.feed((1, pull(0, count=2)))
    for side in both.sides:
        said: list[bytes] = []
        side.core.set_writer(partial(_note, said))
        side.core.receive(1, pull(1, count=2, opaque=101), side.now_ms)
        assert opaques(b"".join(said)) == ([] if side is both.general else [101])
        side.perform()
        side.core.receive(1, pull(2, count=2, opaque=102) + pull(3, opaque=103), side.now_ms)
        side.core.receive(1, pull(4, count=2, opaque=104), side.now_ms)
        side.perform()
        heard = b"".join([*said, *(data for _, data in side.heard)])
        assert opaques(heard) == [101, 102, 103, 104]


def _note(said: list[bytes], _: int, chunks: list[bytes]) -> None:
    said.extend(chunks)


def opaques(data: bytes) -> list[int]:
    return [reply.opaque for reply in FrameReader().read_commands(data)]


def test_read_of_many_pulls_is_cut_as_ever() -> None:
    both = filled()
    for begin in (0, 40):
        both.feed((1, b"".join(pull(n % 8, opaque=n) for n in range(begin, begin + 40))))
    both.end()


@pytest.mark.parametrize(
    "odd",
    [
        pull(1, flag=2, count=2),
        pull(1, is_binary=False, count=2),
        frame(Request.PULL_MESSAGE, {"topic": "Orders"}),
        pull(1, count=2, queueOffset="01"),
        pull(1, count=2, queueOffset="-1"),
        pull(1, count=2, queueId="-1"),
        pull(1, count=2, queueId="4"),
        pull(1, count=2, queueOffset="999999999999999999"),
        pull(1, count=2, commitOffset=""),
        pull(1, count=0),
        pull(1, count=-1),
        pull(1, count=2, maxMsgBytes="1"),
        pull(1, count=2, maxMsgBytes="-5"),
        pull(1, count=2, topic="Nobody"),
        pull(1, count=2, wanted="a || b"),
        pull(1, count=2, wanted="nothing"),
        pull(1, count=2, expressionType="SQL92", wanted="a > 1"),
        pull(1, count=2, flags=0),
        pull(1, count=2, flags=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION),
        pull(400, count=2, flags=PullFlag.SUSPEND | PullFlag.SUBSCRIPTION),
    ],
)
def test_odd_pull_among_plain_ones_makes_no_difference(odd: bytes) -> None:
    both = filled()
    for _ in range(3):
        both.feed((1, pull(0, count=2, commit=5) + odd + odd + pull(1, count=2)))
    both.end()


def operator(code: int, ext: dict[str, str], body: bytes = b"") -> Chunk:
    return 2, frame(code, ext, body)


def _topic(*, perm: int, flag: int) -> bytes:
    ext = {
        "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": str(perm), "topicFilterType": "SINGLE_TAG", "topicSysFlag": str(flag),
        "order": "false",
    }  # fmt: skip
    return frame(Request.UPDATE_AND_CREATE_TOPIC, ext)


RESET = {
    "topic": "Orders", "group": "readers", "timestamp": str(START_MS), "isForce": "true",
    "offset": "1", "queueId": "0",
}  # fmt: skip
CHANGES: dict[str, Chunk] = {
    "broker without reading": operator(
        Request.UPDATE_BROKER_CONFIG, {}, b"brokerPermission=2\n"
    ),
    "no lite pulls": operator(Request.UPDATE_BROKER_CONFIG, {}, b"litePullMessageEnable=false\n"),
    "smaller pulls": operator(
        Request.UPDATE_BROKER_CONFIG, {}, b"maxTransferCountOnMessageInMemory=1\n"
    ),
    "topic without reading": (2, _topic(perm=2, flag=0)),
    "topic with a flag": (2, _topic(perm=6, flag=1)),
    "topic that is no more": operator(Request.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}),
    "group that is no more": operator(Request.DELETE_SUBSCRIPTIONGROUP, {"groupName": "readers"}),
    "offset that was reset": operator(Request.INVOKE_BROKER_TO_RESET_OFFSET, RESET),
    "other subscription": (1, heartbeat(wanted="a", version=8)),
    "other model": (1, heartbeat(model="BROADCASTING")),
}  # fmt: skip


UNDONE = (
    operator(
        Request.UPDATE_BROKER_CONFIG,
        {},
        b"brokerPermission=6\nlitePullMessageEnable=true\nmaxTransferCountOnMessageInMemory=32\n",
    )[1],
    _topic(perm=6, flag=0),
)


@pytest.mark.parametrize("code", PULLS)
@pytest.mark.parametrize("flags", [PullFlag.COMMIT_OFFSET, PullFlag.SUBSCRIPTION])
@pytest.mark.parametrize("name", CHANGES)
def test_change_of_what_pulls_are_judged_by_is_heeded_at_once(
    name: str, flags: int, code: int
) -> None:
    both = filled()
    both.feed((1, heartbeat()))
    for at in (0, 1, 2):
        both.feed((1, pull(at, code=code, flags=flags, count=3, commit=at)))
    assert served(both) == 2
    both.feed(CHANGES[name])
    for at in (0, 1, 2):
        both.feed((1, pull(at, code=code, flags=flags, count=3, commit=at)))
    both.end()


def test_group_that_begins_to_broadcast_and_may_not_is_refused() -> None:
    both = filled()
    config = msgspec.json.encode({"groupName": "readers", "consumeBroadcastEnable": False})
    both.feed((2, frame(Request.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, config)))
    both.feed((1, heartbeat()))
    for at in (0, 1):
        both.feed((1, pull(at, flags=PullFlag.COMMIT_OFFSET, count=3, commit=at)))
    assert served(both) == 1
    both.feed((1, heartbeat(model="BROADCASTING")))
    (reply,) = both.feed((1, pull(2, flags=PullFlag.COMMIT_OFFSET, count=3)))
    assert "broadcast" in (reply.remark or "")
    both.end()


def test_as_many_units_are_looked_through_as_were_asked_for() -> None:
    both = filled()
    for _ in range(2):
        both.feed((1, pull(0, wanted="a", flags=PullFlag.SUBSCRIPTION | PullFlag.COMMIT_OFFSET)))
    for side in both.sides:
        side.core.broker.store.settings.filter_scan_size = 0
        side.core.broker.store.settings.read_count_max = 3
    (reply,) = both.feed((1, pull(0, wanted="a")))
    assert bodies_count(reply) == 3
    assert served(both) == 2
    both.end()


def test_reset_of_another_group_leaves_it_open() -> None:
    both = filled()
    both.feed((1, pull(0, group="others") + pull(0)))
    both.feed(operator(Request.INVOKE_BROKER_TO_RESET_OFFSET, RESET | {"group": "others"}))
    assert all(side.core.broker.offsets.has_reset("others", "Orders", 0) for side in both.sides)
    both.feed((1, pull(0) + pull(1)))
    assert served(both) == 2
    (told,) = both.feed((1, pull(0, group="others")))
    assert told.remark == "OFFSET_RESET"
    both.end()


def test_who_was_judged_anew_is_served_the_short_way_again() -> None:
    both = filled()
    for _ in range(2):
        both.feed(CHANGES["topic with a flag"])
        count = served(both)
        for at in range(4):
            (reply,) = both.feed((1, pull(at, count=2)))
        assert served(both) >= count + 2
    assert (reply.ext or {})["topicSysFlag"] == "1"
    both.end()


def test_accounts_that_are_switched_on_shut_it() -> None:
    both = Both(acl_enabled=True)
    both.feed((1, pull(0) + pull(0)))
    assert served(both) == 0


def test_what_was_written_before_this_start_is_checked_the_general_way() -> None:
    both = filled()
    both.restart({})
    for at in range(4):
        both.feed((1, pull(at, count=2)))
    assert served(both) == 0
    both.feed((1, sends(60, random.Random(4))))
    for at in range(4):
        both.feed((1, pull(at + 30, count=2)))
    both.end()


def test_error_of_the_store_is_told_by_the_general_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = Side(is_fast=True)
    side.feed((1, sends(60) + pull(0) + pull(0)))

    def fail(*_: object, **__: object) -> object:
        raise StorageError("cannot be read")

    store = side.core.broker.store
    monkeypatch.setattr(store, "reply", fail)
    side.heard.clear()
    side.feed((1, pull(0)))
    assert b"FOUND" in side.heard[0][1]
    monkeypatch.setattr(store, "get", fail)
    side.feed((1, pull(0)))
    assert b"cannot be read" in side.heard[1][1]


@pytest.mark.parametrize("seed", seeds(40))
def test_any_mixture_of_pulls_is_the_same_both_ways(seed: int) -> None:
    chance = random.Random(seed)
    both = Both()
    for chunk in _mixture(chance, 120):
        both.feed(chunk)
        if chance.random() < 0.05:
            both.pass_time(chance.choice((1, 5_000, 20_000)))
    assert served(both) > 0
    both.end()


def _mixture(chance: random.Random, count: int) -> Iterator[Chunk]:
    """What consumers and others ask, in reads that end anywhere."""
    waiting = {1: b"", 2: b""}
    habits = [_habit(chance) for _ in range(3)]
    yield 1, sends(60, chance) + heartbeat()
    yield 1, pull(0) + pull(0)
    for _ in range(count):
        peer = chance.choice((1, 1, 2))
        waiting[peer] += _request(chance, habits)
        if chance.random() < 0.7:
            size = len(waiting[peer])
            end = chance.choice((size, size, size, chance.randrange(size + 1)))
            yield peer, waiting[peer][:end]
            waiting[peer] = waiting[peer][end:]


def _request(chance: random.Random, habits: list[dict[str, Any]]) -> bytes:
    kinds: list[tuple[int, Callable[[], bytes]]] = [
        (80, lambda: _pull(chance, chance.choice(habits))),
        (10, lambda: sends(chance.randrange(1, 20), chance)),
        (4, lambda: heartbeat(wanted=chance.choice("*ab"), version=chance.choice((7, 8)))),
        (6, lambda: _told(chance)),
        (1, lambda: chance.choice(list(CHANGES.values()))[1]),
        (2, lambda: b"".join(UNDONE)),
    ]
    make = chance.choices([make for _, make in kinds], [weight for weight, _ in kinds])[0]
    return make()


def _habit(chance: random.Random) -> dict[str, Any]:
    """What a consumer's pulls have in common."""
    return {
        "code": chance.choice((Request.PULL_MESSAGE, *PULLS)),
        "count": chance.choice((1, 32)),
        "flags": chance.choice((1, 3, 4, 5, 7)),
        "wanted": chance.choice(("*", "*", "a")),
    }


def _pull(chance: random.Random, habit: dict[str, Any]) -> bytes:
    return pull(
        chance.choice((0, chance.randrange(40), chance.randrange(300))),
        queue_id=chance.choice((*range(QUEUES), QUEUES)) if chance.random() < 0.3 else 0,
        commit=chance.randrange(50),
        opaque=chance.randrange(1 << 31),
        **habit,
    )


def _told(chance: random.Random) -> bytes:
    ext = {
        "consumerGroup": "readers", "topic": "Orders", "queueId": str(chance.randrange(QUEUES)),
        "commitOffset": str(chance.randrange(60)),
    }  # fmt: skip
    return frame(Request.UPDATE_CONSUMER_OFFSET, ext, flag=chance.choice((0, 2)))
