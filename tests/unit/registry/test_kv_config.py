from __future__ import annotations

from typing import cast

import pytest

from escrowmq.base.ports import Disk
from escrowmq.errors import UsageError
from escrowmq.registry import kv_config

from .exchange import MemoryDisk


def config(disk: MemoryDisk) -> kv_config.KvConfig:
    return kv_config.KvConfig(cast("Disk", disk))


def test_items_outlive_a_restart_in_the_peer_s_file() -> None:
    disk = MemoryDisk()
    table = config(disk)
    table.put("ORDER_TOPIC_CONFIG", "TopicOrd", "broker-a:4")
    table.put("ns1", "k", None)
    assert disk.files[kv_config.KV_PATH] == (
        b'{"configTable":{"ORDER_TOPIC_CONFIG":{"TopicOrd":"broker-a:4"},"ns1":{}}}'
    )
    again = config(disk)
    assert again.get("ORDER_TOPIC_CONFIG", "TopicOrd") == "broker-a:4"
    assert again.namespace_items("ns1") == {}
    assert again.namespace_items("ns2") is None
    again.delete("ORDER_TOPIC_CONFIG", "TopicOrd")
    again.delete("nothing", "there")
    assert config(disk).namespace_items("ORDER_TOPIC_CONFIG") == {}


def test_an_unreadable_file_does_not_keep_the_name_server_from_starting() -> None:
    disk = MemoryDisk()
    disk.files[kv_config.KV_PATH] = b"{{{"
    assert config(disk).namespace_items("ns1") is None
    assert disk.files[kv_config.KV_PATH] == b"{{{"


def test_items_and_their_size_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config, "KV_ITEMS_MAX", 1)
    table = kv_config.KvConfig(None)
    table.put("n", "k", "v")
    table.put("n", "k", "w")
    with pytest.raises(UsageError, match="delete some first"):
        table.put("n", "k2", "v")
    with pytest.raises(UsageError, match="32768 are allowed"):
        table.put("n", "k", "v" * kv_config.KV_TEXT_SIZE_MAX)


@pytest.mark.parametrize("torn", [b"", b"{{{", None])
def test_a_torn_file_is_replaced_by_its_former_content_and_this_is_said(
    torn: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    disk = MemoryDisk()
    disk.files[f"{kv_config.KV_PATH}.bak"] = b'{"configTable":{"ns1":{"k":"v"}}}'
    if torn is not None:
        disk.files[kv_config.KV_PATH] = torn
    assert config(disk).get("ns1", "k") == "v"
    assert "read from kvConfig.json.bak" in caplog.text
