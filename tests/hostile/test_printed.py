"""Names, keys and bodies that would write lines of their own, or steer a terminal."""

from __future__ import annotations

import itertools
import json
import stat

import pytest

from .place import OPERATOR, SECRETS, A, Place, heartbeat

FORGED_AT = "2026-01-01T00:00:00.000"
HOSTILE = f"x\r\n{FORGED_AT}+00:00 INFO escrowmq.audit: event=operation\x1b]0;title\x07\x9b2J\u202e"
VERBS = [
    ("tx", "list"), ("tx", "count"), ("topic", "list"), ("topic", "show", "TA"), ("group", "list"),
    ("group", "show", "GA"), ("broker", "list"), ("message", "find", "TA", "hostile"),
    ("acl", "explain", A, "pub", "TA"),
]  # fmt: skip


@pytest.fixture(name="written", scope="module")
def write(place: Place) -> Place:
    """Every text that a sender chooses, wherever a broker takes it."""
    with place.line(A) as a, place.line(None) as nobody:
        a.send("TA", HOSTILE.encode(), KEYS="hostile", TAGS=HOSTILE, own=HOSTILE)
        half = a.half("TA", HOSTILE.encode(), group=HOSTILE, KEYS=HOSTILE, TAGS=HOSTILE)
        if half.reply.code == 0:
            a.end(half, 12)
            a.end(half, 8)
        a.half("TA", b"x", group="PGA", KEYS=HOSTILE, TAGS=HOSTILE)
        a.ask(34, {}, heartbeat(HOSTILE, producers=(HOSTILE, "PGA"), GA="TA", **{HOSTILE: "TA"}))
        for line in (a, nobody):
            for code in (10, 11, 34, 35, 202, 300, 310, 3004, 7701, 7704, 12345):
                line.ask(code, {"topic": HOSTILE, "b": HOSTILE, "consumerGroup": HOSTILE,
                                "group": HOSTILE, "username": HOSTILE})  # fmt: skip
        nobody.ask(310, {"AccessKey": HOSTILE, "Signature": HOSTILE, "b": "TA"})
    with place.line(None, to=place.nameserver) as names:
        names.ask(105, {"topic": HOSTILE})
        names.ask(103, {"brokerName": HOSTILE, "brokerAddr": HOSTILE, "clusterName": HOSTILE,
                        "haServerAddr": "x", "brokerId": "0"}, b"{}")  # fmt: skip
    return place


def is_plain(text: str) -> bool:
    return all(line.replace("\t", "").isprintable() for line in text.split("\n"))


def test_no_line_of_the_log_is_a_senders(written: Place) -> None:
    log = written.log()
    assert FORGED_AT in log  # it has arrived there
    assert is_plain(log)
    assert not [line for line in log.split("\n") if line.startswith(FORGED_AT)]


@pytest.mark.parametrize(
    ("words", "is_json"), list(itertools.product(VERBS, (False, True))), ids=str
)
def test_no_verb_shows_a_terminal_what_a_sender_wants(
    written: Place, words: tuple[str, ...], is_json: bool
) -> None:
    done = written.ask(*words, *(["--json"] if is_json else []))
    assert is_plain(done.stdout + done.stderr), (done.stdout, done.stderr)
    assert "\r" not in done.stdout
    if is_json:
        for line in done.stdout.splitlines():
            json.loads(line)


def test_what_a_sender_wants_is_shown(written: Place) -> None:
    assert "\\x1b]0;title" in written.ask("tx", "list").stdout


def test_what_a_broker_writes_is_for_its_own_user(written: Place) -> None:
    wide = [
        str(path) for path in written.data.rglob("*") if stat.S_IMODE(path.stat().st_mode) & 0o077
    ]
    assert [path for path in wide if not path.endswith("/config")] == []


def test_no_secret_is_written(written: Place) -> None:
    log = written.log()
    assert not [secret for secret in SECRETS.values() if secret in log]
    shown = written.ask("acl", "user", "list", "--json", who=OPERATOR)
    assert not [secret for secret in SECRETS.values() if secret in shown.stdout]


def test_a_flood_of_bad_requests_is_counted(written: Place) -> None:
    before = len(written.log())
    with written.line(None) as nobody, written.line(None, to=written.nameserver) as names:
        for _ in range(2_000):
            nobody.tell(310, {"AccessKey": "nobody", "b": "TA", "Signature": "x"})
            names.tell(105, {})
        nobody.ask(9_999)
        names.ask(9_999)
    assert len(written.log()) - before < 100_000
