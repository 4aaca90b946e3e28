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
