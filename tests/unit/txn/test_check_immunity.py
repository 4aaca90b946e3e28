from __future__ import annotations

import pytest

from escrowmq.txn.check_immunity import IMMUNITY_MAX_MS, immunity_ms


@pytest.mark.parametrize(
    ("text", "wish_ms"),
    [
        (None, None),
        ("10", 10_000),
        ("0", 0),
        ("-1", None),
        ("x", None),
        ("", None),
        ("1.5", None),
        ("9" * 18, IMMUNITY_MAX_MS),
        ("9" * 30, None),
        ("\u0665", None),
    ],
)
def test_wish_for_no_checks(text: str | None, wish_ms: int | None) -> None:
    properties = {} if text is None else {"CHECK_IMMUNITY_TIME_IN_SECONDS": text}
    assert immunity_ms(properties) == wish_ms
