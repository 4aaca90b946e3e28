from __future__ import annotations

import asyncio
import urllib.request
from pathlib import Path

import pytest

from escrowmq.base.nameserver_settings import NameServerGuardSettings, NameServerSettings
from escrowmq.net.tls import PortOptions
from escrowmq.node.config import NodeSettings
from escrowmq.node.nameserver import GuardSettings, NameServerNode


async def exported(folder: Path, node: NodeSettings, *, is_alone: bool) -> str:
    """What a name server shows on its own port; empty when there is none."""
    guard = GuardSettings(settings=NameServerGuardSettings(), accounts="", users="")
    registry = NameServerNode(
        NameServerSettings(), data=str(folder), host="127.0.0.1", port=0, guard=guard
    )
    await registry.open(idle_ms=120_000, port_options=PortOptions())
    try:
        address = registry.export_metrics(node, host="127.0.0.1", is_alone=is_alone).get(
            "nameserver_metrics"
        )
        if address is None:
            return ""
        return await asyncio.to_thread(fetch, f"http://{address}/metrics")
    finally:
        await registry.close()


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


@pytest.mark.parametrize(
    ("node", "is_alone", "is_shown"),
    [
        (NodeSettings(names_exporter_port=0), False, True),
        (NodeSettings(names_exporter_port=0), True, True),
        (NodeSettings(exporter="PROM", exporter_port=0), True, True),
        (NodeSettings(exporter="PROM", exporter_port=0), False, False),
        (NodeSettings(), True, False),
    ],
)
def test_a_name_server_has_figures_on_a_port_of_its_own(
    tmp_path: Path, node: NodeSettings, is_alone: bool, is_shown: bool
) -> None:
    text = asyncio.run(exported(tmp_path, node, is_alone=is_alone))
    assert ("escrowmq_nameserver_brokers{" in text) == is_shown
    assert ('node_type="nameserver"' in text) == is_shown
