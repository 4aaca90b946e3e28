"""The format `escrowmq`: topics as batches and streams, to read and to write."""

from __future__ import annotations

from typing import Final

from escrowmq.base.extras import require

require("spark", "pyspark", "pyarrow")

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from escrowmq.errors import UsageError
from escrowmq.pipeline.sink.writers import make_batch_writer, make_stream_writer
from escrowmq.pipeline.source.batch import QueuesReader
from escrowmq.pipeline.source.files import FilesReader
from escrowmq.pipeline.source.options import parse_source
from escrowmq.pipeline.source.refusing import RefusingReader
from escrowmq.pipeline.source.schema import check_schema, full_schema
from escrowmq.pipeline.source.stream import make_stream_reader

NAME: Final = "escrowmq"


class EscrowMQSource(DataSource):
    """Topics as tables and streams, and tables and streams into topics."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """All columns."""
        return full_schema(parse_source(self.options, is_stream=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads what is there."""
        options = parse_source(self.options, is_stream=False)
        check_schema(schema, options)
        if options.store_path:
            return FilesReader(options, schema)
        return QueuesReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Reads what is there and what comes."""
        try:
            options = parse_source(self.options, is_stream=True)
            check_schema(schema, options)
        except UsageError as error:
            return RefusingReader(error)
        return make_stream_reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Writes a table."""
        return make_batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Writes a stream."""
        return make_stream_writer(self.options, schema)
