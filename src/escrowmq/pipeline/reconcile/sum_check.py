"""Verifies that the numbers add up: every half has exactly one fate."""

from __future__ import annotations

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from escrowmq.errors import EscrowMQError
from escrowmq.pipeline.reconcile.fates import Fate


class UnbalancedError(EscrowMQError):
    """Raised if numbers that must be equal are not: rows were lost or duplicated on the way."""


class Balance(msgspec.Struct, kw_only=True, rename="camel"):
    """The number of halves by fate."""

    halves: int
    """Number of half records; those stored again count once."""

    committed: int
    rolled_back: int
    pending: int
    parked: int
    expired: int

    def __str__(self) -> str:
        return (
            f"{self.halves} halves = {self.committed} committed + {self.rolled_back} rolled back "
            f"+ {self.pending} pending + {self.parked} parked + {self.expired} expired"
        )


def check_balance(halves: DataFrame, fates: DataFrame) -> Balance:
    """Count both sides; raise Unbalanced if the fates do not add up to all halves."""
    counts = {row["fate"]: row["count"] for row in fates.groupBy("fate").count().collect()}
    again = counts.get(Fate.STORED_AGAIN, 0)
    found = Balance(
        halves=halves.agg(F.count(F.lit(1))).head()[0] - again,
        committed=counts.get(Fate.COMMITTED, 0),
        rolled_back=counts.get(Fate.ROLLED_BACK, 0),
        pending=counts.get(Fate.PENDING, 0),
        parked=counts.get(Fate.PARKED, 0),
        expired=counts.get(Fate.EXPIRED, 0),
    )
    total = found.committed + found.rolled_back + found.pending + found.parked + found.expired
    if total != found.halves:
        raise UnbalancedError(f"{found}: the sum is {total}; read the same range again")
    return found
