from __future__ import annotations

from typing import Any

import pytest

from escrowmq.codec.java_properties import ConfError, parse_java_properties

from .captured import load

TEXTS: list[dict[str, Any]] = load("properties-java-17.json")["texts"]


@pytest.mark.parametrize("row", TEXTS, ids=[repr(row["text"]) for row in TEXTS])
def test_settings_are_read_as_java_reads_them(row: dict[str, Any]) -> None:
    if row["found"] is None:
        with pytest.raises(ConfError):
            parse_java_properties(row["text"])
    else:
        assert parse_java_properties(row["text"]) == row["found"]
