"""What the official Java client may send, ask for and acknowledge, case by case (java/Cases.java).

The verdicts are those of RocketMQ's proxy and broker 5.3.3, to which the same program was put.
"""

from __future__ import annotations

import itertools

import pytest

from escrowmq.proxy.gen import v2
from tests.interop.process import Process
from tests.interop.servers import EscrowServer

from .clients import JAVA, WITHIN_S, java_command
from .places import topic

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(JAVA.missing), reason=f"not on this machine: {JAVA.missing}"),
]

TYPES = ("NORMAL", "FIFO", "DELAY", "TRANSACTION")
BY_VERDICT = {
    "sent": (
        "tag-plain tag-symbols tag-chinese tag-16KiB key-plain key-several key-chinese "
        "body-spaces body-emoji body-4MiB properties-128 property-symbols "
        "property-chinese delay-past delay-day recall-twice ack ack-twice hide-longer-and-ack"
    ),
    "illegal": ("tag-bar tag-blank key-blank body-empty body-larger receive-0"),
    str(v2.ILLEGAL_MESSAGE_TAG): ("tag-control"),
    str(v2.ILLEGAL_MESSAGE_KEY): ("key-control"),
    str(v2.ILLEGAL_MESSAGE_PROPERTY_KEY): (
        "property-control property-reserved property-reserved-too"
    ),
    str(v2.ILLEGAL_INVISIBLE_TIME): (
        "hide-for-13-hours receive-hidden-for-9-s receive-hidden-for-13-hours"
    ),
    str(v2.ILLEGAL_DELIVERY_TIME): ("delay-week"),
    str(v2.TOPIC_NOT_FOUND): ("to-no-topic"),
    str(v2.INTERNAL_SERVER_ERROR): ("recall-nonsense"),
    str(v2.MESSAGE_PROPERTIES_TOO_LARGE): (
        "tag-longer key-longer properties-129 properties-longer"
    ),
}
"""Cases by what becomes of them; `illegal` is what the client itself refuses."""

EXPECTED = {name: verdict for verdict, names in BY_VERDICT.items() for name in names.split()} | {
    f"{sent}-to-{taken}": "sent" if sent == taken else "illegal"
    for sent, taken in itertools.product(TYPES, TYPES)
}


@pytest.fixture(name="verdicts", scope="module")
def judge(server: EscrowServer) -> dict[str, str]:
    """What became of each case."""
    for kind in TYPES:
        topic(server, kind, kind)
    command = [*java_command("Cases"), server.grpc]
    process = Process(command, folder=server.store.parent, name="cases")
    found: dict[str, str] = {}
    try:
        while (line := process.wait_line("", within_s=WITHIN_S)) != "END":
            if line.startswith("CASE "):
                _, name, verdict = line.split()
                found[name] = verdict
    finally:
        process.kill()
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_the_verdict_is_that_of_rocketmq(verdicts: dict[str, str], name: str) -> None:
    assert verdicts[name] == EXPECTED[name]


def test_no_case_is_missing(verdicts: dict[str, str]) -> None:
    assert verdicts.keys() == EXPECTED.keys()
