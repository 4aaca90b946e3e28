from __future__ import annotations

import pytest

from escrowmq.base.message import StoredMessage
from escrowmq.txn.end_claim import Claim
from escrowmq.txn.state import Verdict

from .ground import Ground

COMMIT = Verdict.COMMIT


@pytest.fixture(name="ground")
def make_ground() -> Ground:
    return Ground()


def claim(half: StoredMessage, verdict: Verdict, **named: object) -> Claim:
    return Claim(
        log_offset=half.log_offset,
        queue_offset=half.queue_offset,
        group="PG",
        verdict=verdict,
        **named,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("ids", "is_meant"),
    [
        (("", ""), True),
        (("", "another"), True),
        (("key", "another"), True),
        (("another", "key"), True),
        (("another", ""), False),
        (("another", "another"), False),
    ],
)
def test_a_claim_that_names_a_transaction_means_no_other(
    ground: Ground, ids: tuple[str, str], is_meant: bool
) -> None:
    half = ground.prepare(UNIQ_KEY="key")
    assert claim(half, COMMIT, ids=ids).matches(half) is is_meant
    keyless = ground.prepare(UNIQ_KEY="")
    assert claim(keyless, COMMIT, ids=ids).matches(keyless)
