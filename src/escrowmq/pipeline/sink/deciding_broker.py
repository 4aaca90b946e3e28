"""The broker that decides about a sink's batches: how it is chosen, and requests to it."""

from __future__ import annotations

import logging
import zlib
from typing import Any, Final, TypeVar

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import EPOCH_TOKENS_MAX
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.epoch_bodies import (
    AbandonedCount,
    AbandonTokens,
    DecideEpoch,
    EpochDecision,
    EpochId,
)
from escrowmq.errors import (
    BrokerBusy,
    FlowControlled,
    NotSupported,
    ServiceNotAvailable,
    StorageError,
    TransportError,
    UsageError,
    response_error,
)
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import Cluster, pause
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.sink.checkpoint import (
    load_stored,
    require_query_folder,
    store_durably,
)
from escrowmq.pipeline.sink.options import SinkOptions

_log = logging.getLogger(__name__)

ANSWER_MS: Final = 120_000
"""Timeout of a decision: the broker answers only when all messages are visible, which takes a while
for many."""

UNREACHABLE_RETRY_MS: Final = 120_000
"""Requests to an unreachable broker are retried for this long; then the batch fails."""

_FILE: Final = "escrowmq-sink.json"
_PROBE: Final = "probe/0"
T = TypeVar("T")


class StockBrokerError(UsageError):
    """Raised if the broker is RocketMQ's own, which cannot decide about batches."""


class BrokerDecider:
    """Sends decisions to one broker, and retries while it is unreachable. Every request may be
    repeated: later callers get the first decision."""

    def __init__(self, access: ClusterAccess, *, broker_name: str, group: str) -> None:
        self._cluster = Cluster(access, tries=1, try_again_ms=0, timeout_ms=ANSWER_MS)
        self._broker_name = broker_name
        self._group = group

    def close(self) -> None:
        """Close the connections."""
        self._cluster.close()

    def decide(
        self, epoch: str, tokens: dict[str, int], *, patience_ms: int = UNREACHABLE_RETRY_MS
    ) -> EpochDecision:
        """Make the messages of these tokens visible, unless the epoch was decided before."""
        if len(tokens) > EPOCH_TOKENS_MAX:
            raise UsageError(
                f"batch {epoch} was written in {len(tokens)} pieces, and at most "
                f"{EPOCH_TOKENS_MAX} can be decided about at once; use coalesce() or a "
                "smaller maxOffsetsPerTrigger"
            )
        wish = DecideEpoch(group=self._group, epoch=epoch, tokens=tokens)
        return self._ask(Request.ESCROW_DECIDE, wish, EpochDecision, patience_ms)

    def decision(self, epoch: str, *, patience_ms: int = UNREACHABLE_RETRY_MS) -> EpochDecision:
        """Return the decision about an epoch, if there is one."""
        wish = EpochId(group=self._group, epoch=epoch)
        return self._ask(Request.ESCROW_DECISION, wish, EpochDecision, patience_ms)

    def abandon(self, epoch: str, tokens: list[str]) -> int:
        """Drop the messages of tokens for which the epoch was not decided; return their number."""
        wish = AbandonTokens(group=self._group, epoch=epoch, tokens=tokens)
        return self._ask(Request.ESCROW_ABANDON, wish, AbandonedCount, 0).count

    def _ask(self, code: int, wish: EpochId, kind: type[T], patience_ms: int) -> T:
        body = msgspec.json.encode(wish)
        clock = SystemClock()
        until_ms = clock.now_ms() + patience_ms
        while True:
            try:
                reply = self._cluster.ask_broker(self._broker_name, code, body)
                if reply.code != Response.SUCCESS:
                    raise response_error(reply.code, reply.remark, address=self._broker_name)
                return decode_body(kind, reply.body)
            except NotSupported as error:
                raise StockBrokerError(stock_broker_text(self._broker_name)) from error
            except (TransportError, BrokerBusy, FlowControlled, ServiceNotAvailable) as error:
                if clock.now_ms() >= until_ms:
                    raise
                _log.warning("%s; asking again", error)
                pause()


def choose_broker(options: SinkOptions) -> str:
    """Choose the broker for all halves of a query. The choice is stored in the checkpoint, with the
    group: another broker would not know the batches that this one has decided about."""
    folder, kept = _checkpoint_identity(options)
    if kept is not None:
        if not isinstance(kept.get("broker"), str):
            raise UsageError(
                f"{_FILE} in checkpointLocation={folder!r} is damaged: it names no broker. "
                "If this query has written no batch yet, delete it and start again; "
                "otherwise restore it from a copy of the checkpoint, or begin with another "
                "one"
            )
        for option, given in (("broker", options.broker), ("producerGroup", options.group)):
            before = kept.get(option, given)
            if given and given != before:
                raise UsageError(
                    f"{option}={given!r}, but the decisions about this query's batches were "
                    f"made with {option}={before!r}; keep that value, or begin with another "
                    "checkpoint: a batch that runs again would be written twice"
                )
        return str(kept["broker"])
    chosen = _choose_by_hash(options)
    if folder:
        store_durably(folder, _FILE, {"v": 1, "broker": chosen, "producerGroup": options.group})
    return chosen


def _checkpoint_identity(options: SinkOptions) -> tuple[str, dict[str, Any] | None]:
    """Return the checkpoint's folder, and what was stored there. Nothing is stored without a
    checkpoint, or if the broker is named and Python cannot read and write in the folder."""
    if not options.checkpoint:
        return "", None
    try:
        kept = load_stored(options.checkpoint, _FILE)
        if kept is None and options.is_stream:
            require_query_folder(options.checkpoint)
        return options.checkpoint, kept
    except StorageError:
        if not options.broker:
            raise
        return "", None


def _choose_by_hash(options: SinkOptions) -> str:
    """Choose a broker by a hash, so that queries are spread over the brokers that can decide; or
    return the named one."""
    cluster = Cluster(options.access, tries=3, try_again_ms=1_000)
    try:
        names = cluster.brokers(options.topic)
    finally:
        cluster.close()
    if options.broker:
        if options.broker not in names:
            raise UsageError(
                f"broker={options.broker!r} is not among the brokers that "
                f"{options.topic or 'the cluster'} is on now: {', '.join(names) or 'none'}"
            )
        names = [options.broker]
    able = [name for name in names if _can_decide(options, name)]
    if not able:
        raise StockBrokerError(stock_broker_text(", ".join(names)))
    if len(names) > 1 and options.app_id:
        raise UsageError(
            f"{options.topic or 'the cluster'} is on {', '.join(names)}; name the one that "
            "decides with option broker, so that a repeated job asks the same one"
        )
    mark = zlib.crc32((options.checkpoint or options.app_id).encode())
    return able[mark % len(able)]


def _can_decide(options: SinkOptions, broker_name: str) -> bool:
    decider = BrokerDecider(options.access, broker_name=broker_name, group=options.group)
    try:
        decider.decision(_PROBE, patience_ms=0)
    except StockBrokerError as error:
        _log.info("%s", error)
        return False
    finally:
        decider.close()
    return True


def stock_broker_text(names: str) -> str:
    """Return an error text: why a broker cannot decide, and what to do."""
    return (
        f"broker {names} cannot decide about batches: it is not EscrowMQ's, so transactional=true "
        f"is impossible there. Use a broker of EscrowMQ's, or set "
        "onStockBroker=at-least-once to send plainly, with unique keys that stay the same when "
        "rows are sent again"
    )
