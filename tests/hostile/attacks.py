"""What costs a server much, by those who may ask it: each is one go of an attack."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Callable
from typing import Any, Final

from escrowmq.base.codes import Request
from escrowmq.codec.batch_body import encode_batch

from .place import WIDE, A, B, Line, Place, heartbeat, sending

SETTINGS: Final = (
    "metricsExporterType=PROM", "metricsPromExporterPort=0", "enablePropertyFilter=true",
    "transactionTimeOut=3000", "grpcServerPort=0",
)  # fmt: skip
"""Of a server that is to be attacked."""

PARKED_S: Final = 5.0


def prepare(place: Place) -> None:
    """Messages that filters are asked about."""
    with place.line(A) as a:
        for number in range(600):
            a.tell(310, sending("TA", "PG", 0, {"n": str(number)}), b"x")
        a.ask(310, sending("TA", "PG", 0, {}), b"last")


def pull(topic: str, queue_id: int, *, hold_ms: int = 0, group: str = "GA") -> dict[str, object]:
    return {
        "consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": 0,
        "maxMsgNums": 32, "sysFlag": 6 if hold_ms else 4, "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms, "subscription": "*", "subVersion": 0,
        "expressionType": "TAG",
    }  # fmt: skip


def say(line: Line, code: int, body: bytes) -> None:
    """A request that may be answered, or cost the connection."""
    try:
        line.ask(code, {}, body)
    except OSError:
        return


def header_fields(place: Place) -> None:
    fields = ",".join(f'"{number}":{number}' for number in range(22_000))
    header = f'{{"code":10,"extFields":{{{fields[:240_000].rpartition(",")[0]}}}}}'.encode()
    frame = struct.pack(">II", 4 + len(header), len(header)) + header
    for address in (place.broker, place.nameserver):
        for _ in range(5):
            with place.line(None, to=address) as line:
                line.write(frame)


def sql_of_five_megabytes(place: Place) -> None:
    question = {"topic": "TA", "subString": "a > 1 AND " * 500_000, "expressionType": "SQL92"}
    body = json.dumps({"clientId": "c", "group": "GA", "subscriptionData": question}).encode()
    with place.line(WIDE) as line:
        say(line, Request.CHECK_CLIENT_CONFIG, body)
        say(line, Request.HEART_BEAT, body)


def sql_of_pulls(place: Place) -> None:
    texts = ",".join(f"'text-{number}'" for number in range(950))
    with place.line(WIDE) as line:
        for number in range(10):
            for expression in (f"n{number} IN ({texts})", f"a = {number} OR " * 400 + "b = 1"):
                own = {"subscription": expression, "expressionType": "SQL92", "maxMsgNums": 1024}
                line.ask(Request.PULL_MESSAGE, pull("TA", 0) | own)


def subscriptions(place: Place) -> None:
    tags = "||".join(f"tag-{number}" for number in range(1_000))
    body = json.loads(heartbeat("c", GA="TA"))
    body["consumerDataSet"][0]["subscriptionDataSet"] = [
        {"topic": f"T{number}", "subString": tags, "subVersion": number} for number in range(150)
    ]
    with place.line(WIDE) as line:
        say(line, Request.HEART_BEAT, json.dumps(body).encode())
        say(line, Request.HEART_BEAT, json.dumps(body).encode() + b" " * 3_000_000)


def groups(place: Place) -> None:
    with place.line(WIDE) as line:
        for number in range(3):
            names: dict[str, Any] = {f"G{number}-{nth}": "TA" for nth in range(1_000)}
            say(line, Request.HEART_BEAT, heartbeat("c", **names))
        producers = tuple(f"P{nth}" for nth in range(200_000))
        say(line, Request.HEART_BEAT, heartbeat("c", producers=producers))
        for number in range(100):
            line.ask(Request.PULL_MESSAGE, pull("TA", 0, group=f"OWN{number}"))


def locks(place: Place) -> None:
    with place.line(WIDE) as line:
        for count in (1_000, 20_000):
            queues = [
                {"topic": "TA", "brokerName": "broker-a", "queueId": nth} for nth in range(count)
            ]
            body = {"clientId": "c", "consumerGroup": "GA", "mqSet": queues}
            say(line, Request.LOCK_BATCH_MQ, json.dumps(body).encode())


def members_of_many_groups(place: Place) -> None:
    names: dict[str, Any] = {f"G0-{nth}": "TA" for nth in range(150)}
    lines = [place.line(WIDE) for _ in range(60)]
    for number, line in enumerate(lines):
        say(line, Request.HEART_BEAT, heartbeat(f"c{number}", **names))
    for line in lines:
        line.__exit__(None, None, None)


def a_crowd_of_long_polls(place: Place) -> None:
    lines = [place.line(WIDE) for _ in range(4)]
    for line in lines:
        for _ in range(3_000):
            line.tell(Request.PULL_MESSAGE, pull("TA", 1, hold_ms=20_000))
    with place.line(A) as a:
        a.ask(310, sending("TA", "PG", 0, {}) | {"e": 1}, b"x")
        a.ask(310, sending("TA", "PG", 0, {}) | {"e": 1}, b"y")
    for line in lines:
        line.__exit__(None, None, None)


def reads_in_one_write(place: Place) -> None:
    lines = [place.line(WIDE) for _ in range(4)]
    for line in lines:
        for fields in (pull("TA", 0), pull("TA", 3, hold_ms=20_000)):
            line.write(b"".join([line.frame(Request.PULL_MESSAGE, fields) for _ in range(1_500)]))
    for line in lines:
        line.__exit__(None, None, None)


def long_batches(place: Place) -> None:
    with place.line(A) as a:
        for count in (1_000, 20_000):
            entries = [(0, b"x", b"UNIQ_KEY\x01%032d\x02" % nth) for nth in range(count)]
            fields = sending("TA", "PG", 0, {}) | {"e": 3, "m": "true"}
            reply = a.ask(Request.SEND_BATCH_MESSAGE, fields, encode_batch(entries))
            assert reply.code == 0, reply.remark
            end, queue = (
                int((reply.ext or {})["queueOffset"]) + count,
                {"topic": "TA", "queueId": 3},
            )
            while int((a.ask(Request.GET_MAX_OFFSET, queue).ext or {})["offset"]) < end:
                pass  # till all of it is shown


def a_crowd_that_waits_for_much(place: Place) -> None:
    with place.line(WIDE) as line:
        for _ in range(200):
            line.tell(Request.PULL_MESSAGE, pull("TA", 2, hold_ms=20_000))
        with place.line(A) as a:
            a.ask(310, sending("TA", "PG", 0, {}) | {"e": 2}, bytes(4_000_000))


def parked_halves(place: Place) -> None:
    with place.line(B) as b:
        for _ in range(4_000):
            key = os.urandom(16).hex().upper()
            own = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": "PGB"}
            b.tell(310, sending("TB", "PGB", 4, own), b"x")
    began_s = time.monotonic()
    while time.monotonic() - began_s < PARKED_S:  # parked in the middle of it
        with place.line(B) as b:
            b.ask(Request.HEART_BEAT, {}, heartbeat("c", producers=("PGB",)))


CASES: tuple[Callable[[Place], None], ...] = (
    header_fields, sql_of_five_megabytes, sql_of_pulls, subscriptions, groups, locks,
    members_of_many_groups, a_crowd_of_long_polls, reads_in_one_write,
    long_batches, a_crowd_that_waits_for_much, parked_halves,
)  # fmt: skip
