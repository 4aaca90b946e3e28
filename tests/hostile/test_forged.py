"""Bytes of messages that look like records of the log."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from .forging import BODY_AT, forged, greedy, next_place
from .place import A, B, C, Half, Line, Place, log_offset_of

SECRET = b"what only B may read"
PENDING = b"what B has not committed"
LAST: dict[str, Any] = {
    "MSG_REGION": "DefaultRegion",
    "TRACE_ON": "true",
    "CLUSTER": "DefaultCluster",
}
"""Named by the sender, so that what the broker adds keeps its place, and the next is the last."""

CRC: dict[str, Any] = {**LAST, "__CRC32#": "0000000000"}
WAYS = [signal.SIGTERM, signal.SIGKILL]


def plant(line: Line) -> list[int]:
    """A message of A whose body is forged records; where these stand."""
    place = next_place(line)
    body, places = greedy(place)
    assert log_offset_of(line.send("TA", body)) == place - BODY_AT
    return places


def test_no_forged_place_shows_what_stands_behind_it(place: Place) -> None:
    with place.line(A) as a, place.line(B) as b:
        places = plant(a)
        b.send("TB", SECRET)
        b.half("TB", PENDING)
        b.send("TB", b"." * 3000)
        for at in places:
            shown = a.ask(33, {"offset": at, "topic": "TA"})
            assert shown.code != 0, f"shown: {at}"
        back = {
            "group": "GA", "delayLevel": 0, "originTopic": "TA", "originMsgId": "x",
            "unitMode": "false", "maxReconsumeTimes": 16,
        }  # fmt: skip
        for at in places[::20]:
            assert a.ask(36, back | {"offset": at}).code != 0, f"sent back: {at}"
        assert a.bodies("%RETRY%GA", "GA") == []


@pytest.fixture(params=WAYS, ids=lambda way: way.name)
def way(request: pytest.FixtureRequest) -> signal.Signals:
    found: signal.Signals = request.param
    return found


def poison(line: Line, records: list[tuple[str, bytes, bytes, int]]) -> None:
    """A message of A whose checksum is a lie, with records of others in its body."""
    at = place = next_place(line)
    body = b""
    for topic, text, properties, queue_offset in records:
        body += forged(topic, text, properties, log_offset=at, queue_offset=queue_offset)
        at = place + len(body)
    filling, _ = greedy(at)
    assert log_offset_of(line.send("TA", body + filling, **CRC)) == place - BODY_AT


def test_no_start_takes_a_body_for_records(tmp_path: Path, way: signal.Signals) -> None:
    with Place(tmp_path) as place:
        with place.line(A) as a, place.line(B) as b:
            b.send("TB", b"one of B")
            halves = [b.half("TB", b"half %d" % number) for number in range(4)]
            assert b.end(halves.pop()).code == 0
            op = (halves[0].reply.ext or {})["queueOffset"].encode() + b","
            properties = b"TAGS\x01d\x02escrowOutcomes\x01d\x02"
            poison(
                a,
                [
                    ("TB", b"forged by A", b"", 1), ("TB", b"forged by A", b"", 2),
                    ("RMQ_SYS_TRANS_OP_HALF_TOPIC", op, properties, 1),
                ],
            )  # fmt: skip
            for number in range(10):
                b.send("TB", b"behind it %d" % number)
            halves.append(b.half("TB", b"half behind it"))
            before = {"TA": a.bodies("TA", "GA"), "TB": b.bodies("TB", "GB")}
        place.again(way)
        with place.line(A) as a, place.line(B) as b:
            assert b.bodies("TB", "GB") == before["TB"]
            assert a.bodies("TA", "GA") == before["TA"]
            for half in halves:
                ended = b.end(half)
                assert ended.code == 0, ended.remark
            assert sorted(b.bodies("TB", "GB")[-4:]) == [
                b"half 0", b"half 1", b"half 2", b"half behind it",
            ]  # fmt: skip


def test_nor_the_traces_of_an_account_without_rights(tmp_path: Path, way: signal.Signals) -> None:
    with Place(tmp_path) as place:
        with place.line(B) as b, place.line(C) as c:
            b.send("TB", b"one of B")
            probe = c.send("RMQ_SYS_TRACE_TOPIC", b"probe", UNIQ_KEY="0" * 32, **LAST)
            assert probe.code == 0
            properties = "".join(
                f"{k}\x01{v}\x02" for k, v in ({"UNIQ_KEY": "0" * 32} | LAST).items()
            )
            size = len(forged("RMQ_SYS_TRACE_TOPIC", b"probe", properties.encode(), log_offset=0))
            at = log_offset_of(probe) + size + BODY_AT
            for guess in (-1, 0):  # with and without the last separator
                body = forged("TB", b"forged by C", log_offset=at + guess, queue_offset=1)
                c.send("RMQ_SYS_TRACE_TOPIC", body, UNIQ_KEY="0" * 32, **CRC)
        place.again(way)
        with place.line(B) as b:
            assert b.bodies("TB", "GB") == [b"one of B"]


def test_a_place_that_is_no_number_is_refused(place: Place) -> None:
    with place.line(A) as a:
        for text in ("-1", "9" * 30, "x", "", str((1 << 63) - 1)):
            assert a.ask(33, {"offset": text, "topic": "TA"}).code != 0
        made = Half(a.send("TA"), "k", "PG")
        for what in (0, 8, 12, -1, 1 << 31):
            assert a.ask(37, made.fields(what)).code != 0 or a.bodies("TA", "GA")
