"""The Arrow schema of all columns, as Spark would ask for it."""

from __future__ import annotations

import pyarrow as pa

_NUMBERS = {
    "queueId": pa.int32(),
    "queueOffset": pa.int64(),
    "sysFlag": pa.int32(),
    "flag": pa.int32(),
    "reconsumeTimes": pa.int32(),
    "physicalOffset": pa.int64(),
    "preparedTransactionOffset": pa.int64(),
    "bornTimestamp": pa.timestamp("us", tz="UTC"),
    "storeTimestamp": pa.timestamp("us", tz="UTC"),
    "keys": pa.list_(pa.string()),
    "body": pa.binary(),
    "properties": pa.map_(pa.string(), pa.string()),
}


def schema_of(names: list[str]) -> pa.Schema:
    """The schema of these columns."""
    return pa.schema([(name, _NUMBERS.get(name, pa.string())) for name in names])
