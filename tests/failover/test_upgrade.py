"""A group is upgraded under load, one member after the other, as docs/groups.md says."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.authority import etcd_servers
from tests.interop import jars

from .clients import sending
from .faults import suffer
from .group import running
from .rounds import SERVED_S, TOPIC
from .test_faults import LEAST, java
from .verdict import look

pytestmark = pytest.mark.crash


def test_an_upgrade_loses_and_doubles_nothing(tmp_path: Path) -> None:
    if missing := etcd_servers.missing() or jars.missing_tools("go"):
        pytest.skip(f"not on this machine: {missing}")
    # Long enough that no starved process is taken for dead: the switch alone changes the master.
    with running(tmp_path, escrowTakeover=30_000) as group:
        group.make_topic(TOPIC)
        with sending(group, TOPIC, java()) as clients:
            clients.wait_for(LEAST, within_s=SERVED_S)
            before = {member.name: member.pid for member in group.members}
            record = group.record()
            assert record is not None

            def served() -> None:
                clients.wait_since(time.monotonic_ns(), within_s=SERVED_S)

            span = suffer(group, "upgrade, member by member", served)
            clients.wait_for(LEAST, within_s=SERVED_S)
            now = group.record()
            assert now is not None
            assert now.epoch == record.epoch + 1, "the master has changed once, by the switch"
            assert now.master != record.master
            assert all(member.pid != before[member.name] for member in group.members)
            verdict = look("upgrade", group, TOPIC, clients, [span])
    assert verdict.findings == []
    assert verdict.acknowledged > 2 * LEAST
    assert verdict.ends > LEAST
