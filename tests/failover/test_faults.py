"""Some faults, one after another, on one group with clients at work. `make failover` runs many of
each kind."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.authority import etcd_servers
from tests.harness.certificates import Authority
from tests.interop import jars

from .clients import sending
from .faults import suffer
from .group import running
from .rounds import SERVED_S, TOPIC
from .verdict import look, pause_s

pytestmark = pytest.mark.crash

QUICK: dict[str, Any] = {"escrowSilence": 1_000, "escrowTakeover": 1_500}
"""So that the faults that only time can tell of take seconds less."""

FAULTS = (
    "kill -9 of the master",
    "planned switch",
    "kill -9 of all, and etcd",
    "SIGSTOP of the master",
    "master cut off from all",
    "copies unheard by master",
    "etcd unreachable, then kill -9",
    "power loss of the master",
)
LEAST = 20


def java() -> tuple[str, ...]:
    """RocketMQ's client, where it can be had."""
    return () if jars.missing_tools("java", "javac", "mvn") else ("5.5.0",)


def by_tls(folder: Path) -> dict[str, Any]:
    """Settings of members that copy by TLS; one certificate will do for all."""
    authority = Authority(folder / "authority")
    pair = authority.sign("member")
    return {
        "escrowGroupTls": "enforcing",
        "escrowGroupTlsCertPath": pair.certificate,
        "escrowGroupTlsKeyPath": pair.key,
        "escrowGroupTlsTrustCertPath": authority.root,
    }


@pytest.mark.parametrize("has_tls", [False, pytest.param(True, marks=pytest.mark.long)])
def test_nothing_acknowledged_is_lost_or_doubled(tmp_path: Path, has_tls: bool) -> None:
    if missing := etcd_servers.missing() or jars.missing_tools("go", *["openssl"] * has_tls):
        pytest.skip(f"not on this machine: {missing}")
    tls = by_tls(tmp_path) if has_tls else {}
    with running(tmp_path, **QUICK, **tls) as group:
        group.make_topic(TOPIC)
        with sending(group, TOPIC, java()) as clients:
            clients.wait_for(LEAST, within_s=SERVED_S)
            spans = []
            for fault in FAULTS:

                def served() -> None:
                    clients.wait_since(time.monotonic_ns(), within_s=SERVED_S)

                spans.append(suffer(group, fault, served))
                clients.wait_for(LEAST, within_s=SERVED_S)
            verdict = look("each", group, TOPIC, clients, spans)
    assert verdict.findings == []
    assert verdict.acknowledged > LEAST * len(FAULTS)


def test_the_longest_pause_is_what_no_acknowledgement_interrupts() -> None:
    from escrowmq.drill.history import AcknowledgedSend

    sent = [
        AcknowledgedSend("t", str(end), 0, end, "", end_ns=end * 10**9)
        for end in (1, 2, 3, 7, 8, 20)
    ]
    assert pause_s(sent, 2 * 10**9, 15 * 10**9) == 7
    assert pause_s(sent, 2 * 10**9, 7 * 10**9) == 4
    assert pause_s(sent, 8 * 10**9, 9 * 10**9) == 1
