from __future__ import annotations

from typing import Any

import pytest

from escrowmq.client.core.addresses import parse_addresses, split_address
from escrowmq.errors import (
    UsageError,
)


def test_addresses_in_every_spelling() -> None:
    assert parse_addresses("a:1;b:2") == parse_addresses("a:1, b:2") == ("a:1", "b:2")
    assert parse_addresses(["http://a:1", "a:1"]) == ("a:1",)
    assert split_address("[::1]:9876") == ("::1", 9876)


@pytest.mark.parametrize("given", [9876, ["a:1", 5], b"a:1"])
def test_addresses_are_texts(given: Any) -> None:
    with pytest.raises(UsageError, match="'host:port', or a list of these, is expected"):
        parse_addresses(given)


@pytest.mark.parametrize("given", ["", " ; ", [], [""]])
def test_without_an_address_the_user_is_told_how_to_give_one(given: Any) -> None:
    with pytest.raises(UsageError, match="NAMESRV_ADDR"):
        parse_addresses(given)


@pytest.mark.parametrize(
    "given", ["host", ":1", "host:", "host:x", "host:-1", "host:0", "host:65536"]
)
def test_an_address_is_a_host_and_a_port(given: str) -> None:
    with pytest.raises(UsageError, match=r"a port of 1\.\.65535 is expected"):
        parse_addresses(given)
    assert split_address("host:65535") == ("host", 65_535)


def test_an_address_has_no_protocol() -> None:
    with pytest.raises(UsageError, match="without a prefix"):
        parse_addresses("https://host:1")
