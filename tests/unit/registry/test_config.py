from __future__ import annotations

import pytest

from escrowmq.base.settings import NameServerSettings
from escrowmq.errors import UsageError
from escrowmq.registry.config import (
    TEXT_SIZE_MAX,
    ConfigTextError,
    format_settings,
    is_forbidden,
    parse_lines,
    update_settings,
)


def test_lines_are_read_as_java_s_properties() -> None:
    text = (
        "# comment\n! too\n\n a = 1\nb:2\r\nc 3\nd\\ e=f\\=g\n"
        "h=i\\\n   j\nk=\\u00e9\\t\nl\na=9\nm=\\"
    )
    assert parse_lines(text) == {
        "a": "9", "b": "2", "c": "3", "d e": "f=g", "h": "ij", "k": "é\t", "l": "", "m": "",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["a=\\u12", "a=" + "x" * TEXT_SIZE_MAX])
def test_text_that_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigTextError):
        parse_lines(text)


def test_settings_are_listed_sorted_under_the_peer_s_keys() -> None:
    lines = format_settings(NameServerSettings()).splitlines()
    assert lines == sorted(lines)
    assert "orderMessageEnable=false" in lines
    assert "waitSecondsForService=45" in lines


def test_an_update_is_all_or_nothing() -> None:
    settings = NameServerSettings()
    update_settings(settings, {"enableTopicList": " FALSE ", "unknown": "1"})
    assert not settings.lists_topics
    with pytest.raises(UsageError, match="waitSecondsForService=-1"):
        update_settings(settings, {"enableTopicList": "true", "waitSecondsForService": "-1"})
    assert not settings.lists_topics


@pytest.mark.parametrize("key", ["kvConfigPath", "rocketmqHome", "configBlackList", "mine"])
def test_keys_of_the_black_list_are_forbidden(key: str) -> None:
    settings = NameServerSettings(blacklist="mine;yours")
    assert is_forbidden({key: "x"}, settings)
    assert not is_forbidden({"orderMessageEnable": "true"}, settings)
