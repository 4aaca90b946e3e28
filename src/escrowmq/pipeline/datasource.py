"""Spark's data source `escrowmq`, which reads and writes topics as batches and streams.

Spark starts a Python process each time that it plans a read or a write, and this process imports
this module. So a reader imports only code for reading. The writers' code, which includes a whole
producer, is imported only for writing.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.extras import require_extra

require_extra("spark", "pyspark", "pyarrow")

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from escrowmq.errors import UsageError
from escrowmq.pipeline.source.options import parse_source_options
from escrowmq.pipeline.source.refusing import RefusingReader
from escrowmq.pipeline.source.schema import check_schema, full_schema

NAME: Final = "escrowmq"


class EscrowMQSource(DataSource):
    """Reads topics as tables and streams, and writes tables and streams to topics."""

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return NAME

    def schema(self) -> StructType:
        """The schema with all columns."""
        return full_schema(parse_source_options(self.options, is_stream=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make a batch reader."""
        options = parse_source_options(self.options, is_stream=False)
        check_schema(schema, options)
        if options.store_path:
            from escrowmq.pipeline.source.files import FilesReader

            return FilesReader(options, schema)
        from escrowmq.pipeline.source.batch import QueuesReader

        return QueuesReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's
        """Make a stream reader."""
        try:
            options = parse_source_options(self.options, is_stream=True)
            check_schema(schema, options)
        except UsageError as error:
            return RefusingReader(error)
        from escrowmq.pipeline.source.stream import make_stream_reader

        return make_stream_reader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Make a batch writer."""
        from escrowmq.pipeline.sink.writers import make_batch_writer

        return make_batch_writer(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802 - Spark's name
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        """Make a stream writer."""
        from escrowmq.pipeline.sink.writers import make_stream_writer

        return make_stream_writer(self.options, schema)
