from __future__ import annotations

import pytest

from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.errors import UsageError
from escrowmq.registry.settings_file import SettingsFile

from .exchange import Exchange, MemoryDisk


def test_settings_are_listed_sorted_under_the_peer_s_keys() -> None:
    lines = SettingsFile(NameServerSettings(), None).settings_text().splitlines()
    assert lines == sorted(lines)
    assert "orderMessageEnable=false" in lines
    assert "waitSecondsForService=45" in lines


def test_an_update_is_all_or_nothing() -> None:
    settings = NameServerSettings()
    config = SettingsFile(settings, None)
    config.update({"enableTopicList": " FALSE ", "unknown": "1"})
    assert not settings.lists_topics
    with pytest.raises(UsageError, match="waitSecondsForService=-1"):
        config.update({"enableTopicList": "true", "waitSecondsForService": "-1"})
    assert not settings.lists_topics


@pytest.mark.parametrize("key", ["kvConfigPath", "rocketmqHome", "configBlackList", "mine"])
def test_keys_of_the_black_list_are_forbidden(key: str) -> None:
    config = SettingsFile(NameServerSettings(blacklist="mine;yours"), None)
    assert config.has_forbidden_key({key: "x"})
    assert not config.has_forbidden_key({"orderMessageEnable": "true"})


def change(exchange: Exchange, text: str) -> int:
    return exchange.ask(318, body=text.encode()).code


def test_change_by_a_request_survives_a_restart() -> None:
    disk = MemoryDisk()
    assert change(Exchange(disk=disk), "orderMessageEnable=true\n# no\nunknown=1") == 0
    again = Exchange(NameServerSettings(), disk)
    assert again.settings.serves_order_conf
    assert b"orderMessageEnable=true\n" in again.ask(319).body
    assert change(again, "orderMessageEnable=false") == 0
    assert not Exchange(NameServerSettings(), disk).settings.serves_order_conf


def test_change_that_cannot_be_saved_is_refused_and_not_made() -> None:
    disk = MemoryDisk()
    disk.is_full = True
    exchange = Exchange(disk=disk)
    assert change(exchange, "orderMessageEnable=true") == 1
    assert not exchange.settings.serves_order_conf


@pytest.mark.parametrize("text", ["a=\\u12", "configBlackList=", "waitSecondsForService=x"])
def test_change_that_cannot_be_is_refused(text: str) -> None:
    disk = MemoryDisk()
    assert change(Exchange(disk=disk), text) in (1, 16)
    assert disk.files == {}
