"""The transactional sink: rows are stored as halves, and one decision commits a batch.

A task attempt writes under unique tokens, and reports them to the driver. The driver sends the
broker the tokens of the attempts that Spark counts. The broker's record of this decision is the
commit point: the broker then makes their halves visible, and drops all others. If Spark runs a
batch again, it is already decided and writes nothing.

A named write of a table (`txnAppId`) has a number, and later writes have larger numbers. The broker
remembers only the last decision, and drops writes with smaller numbers. Each topic is counted
separately."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from escrowmq.codec.epoch_bodies import EpochDecision
from escrowmq.errors import EscrowMQError, UsageError
from escrowmq.pipeline.sink.deciding_broker import BrokerDecider
from escrowmq.pipeline.sink.halves import EpochDecided, HalfSender
from escrowmq.pipeline.sink.options import SinkOptions
from escrowmq.pipeline.sink.rows import messages_of_rows

_log = logging.getLogger(__name__)


class AttemptTokens(msgspec.Struct, frozen=True):
    """The tokens of a task attempt, each with the number of its halves."""

    epoch: str
    counts: dict[str, int]


def open_epoch(options: SinkOptions, *, broker_name: str) -> str:
    """Return the epoch of a write of a table. Raises UsageError if its broker has decided about a
    later write of the same name."""
    if not options.app_id:
        return options.batch_epoch
    own = _named_epoch(options)
    if not broker_name:
        return own
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    try:
        # Release 0.1.0 counted all topics of a name together: look for its epoch too.
        for epoch in (own, options.batch_epoch):
            found = decider.decision(epoch)
            if found.decided != "no":
                _require_latest(found, options)
                return epoch
    finally:
        decider.close()
    return own


def _named_epoch(options: SinkOptions) -> str:
    """Return the epoch of a named write. Two writes have the same one only if name, topic (empty
    for rows that have their own) and number are the same, and none is an epoch of release 0.1.0:
    names are stripped, so none of those begins with a space."""
    app = options.app_id.replace("%", "%25").replace("/", "%2F")
    return f" {app}/{options.topic}/{options.version}"


def _require_latest(found: EpochDecision, options: SinkOptions) -> None:
    """Log that a named write was done before. Raise UsageError if that is unknown, because the
    broker has decided about a write with a larger number since."""
    if not options.app_id:
        return
    name = f"txnAppId={options.app_id!r}, txnVersion={options.version}"
    if not found.tokens:
        raise UsageError(
            f"{name}: a write of this name with a larger number is done, so the broker would drop "
            "this one. Numbers must grow: give a larger txnVersion, or another txnAppId for a "
            "series of its own (a backfill)"
        )
    _log.warning("%s: this write was done before, so its rows are not written again", name)


def write_halves(
    batches: Iterable[Any], options: SinkOptions, *, broker_name: str, epoch: str
) -> AttemptTokens:
    """Store the rows of a task as halves, unless its batch is already decided."""
    counts: dict[str, int] = {}
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    sender = HalfSender(options, broker_name=broker_name, epoch=epoch)
    try:
        found = decider.decision(epoch)
        if found.decided != "no":
            _require_latest(found, options)
            return AttemptTokens(epoch, {})
        for batch in batches:
            rows = list(messages_of_rows(batch, topic=options.topic, order_by=options.order_by))
            if rows:
                token, count = sender.send(rows)
                counts[token] = count
    except EpochDecided as error:
        _log.info("%s", error)
        _require_latest(decider.decision(epoch), options)
        return AttemptTokens(epoch, {})
    except BaseException:
        _abandon_batch(decider, epoch, sender.tokens)
        raise
    finally:
        sender.close()
        decider.close()
    return AttemptTokens(epoch, counts)


def decide_batch(
    written: Sequence[AttemptTokens], options: SinkOptions, *, broker_name: str
) -> None:
    """Make a batch visible. For a batch without rows, nothing is recorded."""
    counts: dict[str, int] = {}
    for each in written:
        counts |= each.counts
    if not counts:
        return
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    try:
        found = decider.decide(written[0].epoch, counts)
    finally:
        decider.close()
    if found.decided == "before":
        _require_latest(found, options)
        _log.info("batch %s was decided before; its repeated rows are dropped", written[0].epoch)


def abandon_halves(
    written: Sequence[AttemptTokens], options: SinkOptions, *, broker_name: str
) -> None:
    """Drop the halves that were written, unless they were decided for: Spark also gives up a batch
    whose decision was recorded if only the answer was lost. A failure is harmless, because the
    broker itself drops undecided halves."""
    tokens = [token for each in written for token in each.counts]
    if not tokens:
        return
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    try:
        _abandon_batch(decider, written[0].epoch, tokens)
    finally:
        decider.close()


def close_epoch(options: SinkOptions, *, broker_name: str, epoch: str) -> None:
    """Decide for no token, unless there is a decision already. This drops all halves of an epoch
    that will not be written again, also those of tasks that ended before they could report them."""
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    try:
        decider.decide(epoch, {}, patience_ms=0)
    except EscrowMQError as error:
        _log.warning(
            "the halves of an abandoned batch could not be dropped, so the broker will "
            "drop them: %s",
            error,
        )
    finally:
        decider.close()


def _abandon_batch(decider: BrokerDecider, epoch: str, tokens: Sequence[str]) -> None:
    try:
        decider.abandon(epoch, list(tokens))
    except EscrowMQError as error:
        _log.warning(
            "the halves of an abandoned batch could not be dropped, so the broker will "
            "drop them: %s",
            error,
        )
