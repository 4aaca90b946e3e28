"""Tables of messages as the source gives them, written by hand: one broker's log in the making."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructField, StructType

from escrowmq.pipeline.source.schema import TYPES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

START = dt.datetime(2026, 11, 21, 12, 0, 0, tzinfo=dt.UTC)
COMMIT = 8


class Log:
    """A log that is written record by record; `rows` become a table."""

    def __init__(self, broker: str | None = "broker-a") -> None:
        self.broker = broker
        self.rows: list[dict[str, Any]] = []
        self._offsets: dict[tuple[str, int], int] = {}
        self._end = 0

    def put(
        self,
        topic: str,
        *,
        age_s: float = 1000,
        queue_id: int = 0,
        body: bytes = b"body",
        tags: str | None = None,
        sys_flag: int = 0,
        prepared: int = 0,
        **properties: str,
    ) -> dict[str, Any]:
        """Append a record that was stored so long before START."""
        place = (topic, queue_id)
        offset = self._offsets.get(place, 0)
        self._offsets[place] = offset + 1
        stored = START - dt.timedelta(seconds=age_s)
        row = dict.fromkeys(TYPES) | {
            "topic": topic, "brokerName": self.broker, "queueId": queue_id, "queueOffset": offset,
            "msgId": properties.get("UNIQ_KEY"), "tags": tags, "body": body,
            "properties": properties, "bornTimestamp": stored, "storeTimestamp": stored,
            "sysFlag": sys_flag, "physicalOffset": self._end, "preparedTransactionOffset": prepared,
        }  # fmt: skip
        self._end += 100
        self.rows.append(row)
        return row

    def half(
        self, key: str, *, topic: str = "paid", age_s: float = 1000, **more: Any
    ) -> dict[str, Any]:
        """A half message."""
        return self.put(
            "RMQ_SYS_TRANS_HALF_TOPIC", age_s=age_s, UNIQ_KEY=key, REAL_TOPIC=topic, REAL_QID="0",
            PGROUP="orders", **more,
        )  # fmt: skip

    def op(self, *halves: dict[str, Any], outcomes: str | None = None) -> None:
        """An op record that names them; without outcomes it is RocketMQ's."""
        body = "".join(f"{half['queueOffset']}," for half in halves).encode()
        more: dict[str, Any] = {} if outcomes is None else {"escrowOutcomes": outcomes}
        self.put("RMQ_SYS_TRANS_OP_HALF_TOPIC", body=body, tags="d", **more)

    def final(self, half: dict[str, Any], *, age_s: float = 990, **more: Any) -> dict[str, Any]:
        """The message that a commit makes visible."""
        properties = half["properties"]
        own = {"tags": half["tags"], "body": half["body"], "prepared": half["physicalOffset"]}
        topic = more.pop("topic", properties["REAL_TOPIC"])
        return self.put(topic, age_s=age_s, sys_flag=COMMIT, **(own | properties | more))

    def table(self, spark: SparkSession) -> DataFrame:
        """The log as the source gives it."""
        schema = StructType([StructField(name, kind) for name, kind in TYPES.items()])
        return spark.createDataFrame([tuple(row[n] for n in TYPES) for row in self.rows], schema)
