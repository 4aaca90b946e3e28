"""The columns of the source as Spark knows them."""

from __future__ import annotations

import inspect
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from escrowmq.errors import UsageError
from escrowmq.pipeline.source.options import SourceOptions

TYPES: Final[dict[str, DataType]] = {
    "topic": StringType(),
    "brokerName": StringType(),
    "queueId": IntegerType(),
    "queueOffset": LongType(),
    "msgId": StringType(),
    "offsetMsgId": StringType(),
    "tags": StringType(),
    "keys": ArrayType(StringType(), containsNull=False),
    "body": BinaryType(),
    "properties": MapType(StringType(), StringType(), valueContainsNull=False),
    "bornTimestamp": TimestampType(),
    "storeTimestamp": TimestampType(),
    "bornHost": StringType(),
    "storeHost": StringType(),
    "sysFlag": IntegerType(),
    "flag": IntegerType(),
    "reconsumeTimes": IntegerType(),
    "physicalOffset": LongType(),
    "preparedTransactionOffset": LongType(),
    "transactionId": StringType(),
}

NULLABLE: Final = frozenset({"brokerName", "tags", "keys", "transactionId"})
"""Columns that may be null. All others are declared as not null: otherwise Spark tests every value
twice per row, a sixth of its work on a row."""


def full_schema(options: SourceOptions) -> StructType:
    """Return all columns, except those that options leave out."""
    types = _types(options)
    return StructType([StructField(name, kind, name in NULLABLE) for name, kind in types.items()])


def check_schema(schema: StructType, options: SourceOptions) -> None:
    """Validate a user's schema, which selects columns by name. Raises UsageError for the first that
    is unknown, or has another type."""
    known = _types(options)
    for field in schema.fields:
        kind = known.get(field.name)
        if kind is None:
            raise UsageError(
                f"the schema names a column {field.name!r}; there are {', '.join(known)}"
            )
        if kind.simpleString() != field.dataType.simpleString():
            raise UsageError(
                f"the schema gives column {field.name} the type {field.dataType.simpleString()}; "
                f"it has {kind.simpleString()}, cast it with select()"
            )


def arrow_schema(schema: StructType) -> bytes:
    """Return the schema for Arrow, serialized; batches must have exactly these types."""
    takes_zone = "timezone" in inspect.signature(to_arrow_schema).parameters
    # PySpark 4.1 has no such parameter, and means UTC.
    found: pa.Schema = to_arrow_schema(schema, **({"timezone": "UTC"} if takes_zone else {}))
    return found.serialize().to_pybytes()


def _types(options: SourceOptions) -> dict[str, DataType]:
    found = dict(TYPES)
    if not options.has_body:
        del found["body"]
    if options.properties == "none":
        del found["properties"]
    elif options.properties == "string":
        found["properties"] = StringType()
    return found
