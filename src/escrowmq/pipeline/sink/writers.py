"""Spark's writers for `df.write.format("escrowmq")` and `writeStream`, which send rows as
messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from escrowmq.errors import UsageError
from escrowmq.pipeline.sink.acknowledged_sink import send_keyed, send_plain
from escrowmq.pipeline.sink.deciding_broker import StockBrokerError, choose_broker
from escrowmq.pipeline.sink.exactly_once import (
    AttemptTokens,
    abandon_halves,
    close_epoch,
    decide_batch,
    open_epoch,
    write_halves,
)
from escrowmq.pipeline.sink.options import SinkOptions, parse_sink_options
from escrowmq.pipeline.sink.rows import check_columns
from escrowmq.pipeline.workers import speed_up_process

_log = logging.getLogger(__name__)

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"


class TaskReport(WriterCommitMessage):
    """A task's report to the driver."""

    def __init__(self, tokens: AttemptTokens | None, count: int) -> None:
        self.tokens = tokens
        self.count = count


class SharedWriter:
    """Code shared by both writers: sends rows as messages, or as halves to the broker that
    decides."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options
        self.broker_name = ""
        if options.is_transactional:
            try:
                self.broker_name = choose_broker(options)
            except StockBrokerError as error:
                if not options.takes_stock:
                    raise
                _log.warning(
                    "%s. onStockBroker=at-least-once is set: rows may be delivered twice after a "
                    "failure, under the same unique key",
                    error,
                )

    def write(self, batches: Iterator[Any], epoch: str) -> TaskReport:
        """Send the rows of one task."""
        speed_up_process()
        if self.broker_name:
            tokens = write_halves(batches, self.options, broker_name=self.broker_name, epoch=epoch)
            return TaskReport(tokens, sum(tokens.counts.values()))
        if self.options.is_transactional:
            context = TaskContext.get()
            assert context is not None
            prefix = f"{epoch}/{context.partitionId()}"
            return TaskReport(None, send_keyed(batches, self.options, key_prefix=prefix))
        return TaskReport(None, send_plain(batches, self.options))

    def commit(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Make the batch visible, because all tasks are done."""
        decide_batch(_reported_tokens(messages), self.options, broker_name=self.broker_name)

    def abort(self, messages: Iterable[WriterCommitMessage | None]) -> None:
        """Drop the halves that the tasks have reported, because the batch is given up; failed tasks
        have reported none."""
        abandon_halves(_reported_tokens(messages), self.options, broker_name=self.broker_name)

    def close_epoch(self, epoch: str) -> None:
        """Drop all halves of a batch that will not be written again."""
        close_epoch(self.options, broker_name=self.broker_name, epoch=epoch)


class BatchWriter(DataSourceArrowWriter):
    """Writes a table. Spark runs pickled copies of this object in the tasks and in the commit."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = SharedWriter(options)
        self._epoch = open_epoch(options, broker_name=self._writing.broker_name)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task."""
        return self._writing.write(iterator, self._epoch)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the write visible, because all tasks are done."""
        self._writing.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop the halves of a failed job. A job without a name of its own is never run again under
        the same one."""
        if self._writing.options.app_id or not self._writing.broker_name:
            self._writing.abort(messages)
        else:
            self._writing.close_epoch(self._epoch)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, one numbered batch after another."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = SharedWriter(options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of one task of one batch."""
        context = TaskContext.get()
        assert context is not None
        # Spark gives tasks a batch's number in no other way. Both values stay the same when the
        # batch runs again, also in another process.
        epoch = f"{context.getLocalProperty(_QUERY_ID)}/{context.getLocalProperty(_BATCH_ID)}"
        return self._writing.write(iterator, epoch)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Make a batch visible, because all its tasks are done."""
        self._writing.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Drop the halves of a batch whose tasks or whose commit failed."""
        self._writing.abort(messages)


def make_batch_writer(
    options: Mapping[str, str], schema: StructType, *, overwrite: bool
) -> BatchWriter:
    """Make the writer of a table. Raises UsageError if it is impossible."""
    if overwrite:
        raise UsageError("a topic cannot be overwritten; use mode('append')")
    return BatchWriter(_parse(options, schema, is_stream=False))


def make_stream_writer(options: Mapping[str, str], schema: StructType) -> StreamWriter:
    """Make the writer of a stream. Raises UsageError if it is impossible."""
    return StreamWriter(_parse(options, schema, is_stream=True))


def _parse(options: Mapping[str, str], schema: StructType, *, is_stream: bool) -> SinkOptions:
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    found = parse_sink_options(options, is_stream=is_stream, columns=types)
    check_columns(types, order_by=found.order_by)
    return found


def _reported_tokens(messages: Iterable[WriterCommitMessage | None]) -> list[AttemptTokens]:
    found = [each.tokens for each in messages if isinstance(each, TaskReport)]
    return [each for each in found if each is not None]
