"""The state of the whole cluster: brokers, rates, pending transactions."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Final, TypeVar

import msgspec
from msgspec import Meta

from escrowmq.client.admin.brokers import ConnectedSlave
from escrowmq.console.answers import Answer
from escrowmq.console.metrics_collector import read_rate
from escrowmq.console.operations import Caller, NoParameters, Operation
from escrowmq.console.rings import SIZE, STEP_S
from escrowmq.errors import EscrowMQError

T = TypeVar("T")


class BrokerNow(Answer, kw_only=True):
    """The current metrics of one broker. Fields are null if the broker does not report them."""

    name: str
    address: str
    cluster: str
    id: int
    version: str
    build: str
    state: str
    """`registered`, `unreachable`, or `gone`."""
    gone_ms: int = 0
    was_stopped: bool = False
    put_per_s: float | None = None
    get_per_s: float | None = None
    takes_messages: bool | None = None
    refusal: str = ""
    disk_used: float | None = None
    """Used part of the disk, 0 to 1."""
    up_since_ms: int | None = None
    replicas: list[ConnectedSlave] | None = None
    """For a master: the slaves that copy its log; null if it does not report them."""


class Overview(Answer, kw_only=True):
    """The state of the cluster at a moment."""

    brokers: list[BrokerNow]
    put_per_s: float | None
    get_per_s: float | None
    topics: int | None
    groups: int | None
    pending: int | None
    """Pending transactions on the brokers that can count them."""
    parked: int | None
    oldest_pending_ms: int | None
    """When the oldest pending transaction was stored; null if there is none, or no broker reports
    it."""
    not_counted: list[str]
    """Brokers that do not report pending transactions: Apache RocketMQ's."""
    missing: list[str]
    """Brokers that left within the last hour; their data is not included."""


class HistoryWanted(msgspec.Struct, kw_only=True):
    """Names the metric whose history to return."""

    of: Annotated[
        str, Meta(description="put, get, pending, parked; put:BROKER, get:BROKER; lag:GROUP; "
                  "stored:TOPIC")
    ]  # fmt: skip
    points: Annotated[int, Meta(ge=1, le=SIZE)] = SIZE


class History(Answer, kw_only=True):
    """A metric over the last hour, as far as it was recorded; null where it was unknown. Recording
    begins with the first viewer."""

    of: str
    step_s: float
    values: list[float | None]


async def list_brokers(caller: Caller, wanted: NoParameters) -> list[BrokerNow]:
    """List all brokers with their metrics."""
    client = caller.account_client
    client.collector.note_viewer()
    admin = await client.open_admin()
    found: list[BrokerNow] = []
    for one in await client.memo.get_or_request("brokers", admin.brokers.all):
        now = BrokerNow(
            name=one.name, address=one.address, cluster=one.cluster, id=one.id,
            version=one.version, build=one.build, state="registered",
        )  # fmt: skip
        if one.id == 0:
            try:
                _add_metrics(now, await client.collector.broker_runtime(one.name))
                now.replicas = await _answer_or_none(client.collector.broker_replicas(one.name))
            except EscrowMQError:
                now.state = "unreachable"
        found.append(now)
    gone = await client.memo.get_or_request("gone", admin.brokers.gone)
    return found + [
        BrokerNow(
            name=one.name, address=one.address, cluster=one.cluster, id=one.id, version="",
            build="", state="gone", gone_ms=one.gone_ms, was_stopped=one.was_stopped,
        )
        for one in gone
    ]  # fmt: skip


def _add_metrics(now: BrokerNow, found: dict[str, str]) -> None:
    now.put_per_s, now.get_per_s = read_rate(found, "putTps"), read_rate(found, "getTransferredTps")
    if "escrowReadOnly" in found:
        now.refusal = found["escrowReadOnly"]
        now.takes_messages = not now.refusal
    now.disk_used = read_rate(found, "commitLogDiskRatio")
    now.up_since_ms = int(read_rate(found, "bootTimestamp") or 0) or None


async def show_overview(caller: Caller, wanted: NoParameters) -> Overview:
    """Show brokers, rates, and numbers of pending transactions."""
    client = caller.account_client
    admin = await client.open_admin()
    found = await list_brokers(caller, wanted)
    counts = await _answer_or_none(client.collector.transaction_counts())
    topics = await _answer_or_none(
        client.memo.get_or_request("topics", admin.topics.names, fresh_s=10)
    )
    groups = await _answer_or_none(
        client.memo.get_or_request("groups", admin.groups.names, fresh_s=10)
    )
    here = [one for one in found if one.state != "gone"]
    oldest_ms = -1 if counts is None else counts.oldest_ms
    return Overview(
        brokers=found,
        put_per_s=_sum_known([one.put_per_s for one in here if one.id == 0]),
        get_per_s=_sum_known([one.get_per_s for one in here if one.id == 0]),
        topics=None if topics is None else len(topics),
        groups=None if groups is None else len(groups),
        pending=None if counts is None else counts.count,
        parked=None if counts is None else counts.parked,
        oldest_pending_ms=oldest_ms if oldest_ms >= 0 else None,
        not_counted=[] if counts is None else counts.not_counted,
        missing=sorted({one.name for one in found if one.state == "gone"}
                       - {one.name for one in here}),
    )  # fmt: skip


async def show_history(caller: Caller, wanted: HistoryWanted) -> History:
    """Return the history of one metric."""
    kind, _, name = wanted.of.partition(":")
    collector = caller.account_client.collector
    collector.note_viewer(
        group=name.partition(":")[0] if kind == "lag" else "",
        topic=name if kind == "stored" else "",
    )
    values = collector.rings.newest_values(wanted.of, wanted.points)
    return History(of=wanted.of, step_s=STEP_S, values=values)


async def _answer_or_none(ask: Awaitable[T]) -> T | None:
    """Return the answer of a request, or None if no broker answers."""
    try:
        return await ask
    except EscrowMQError:
        return None


def _sum_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


OPERATIONS: Final = (
    Operation(name="overview.show", method="GET", path="/overview", wants=NoParameters,
              gives=Overview, summary="The cluster at a glance", handler=show_overview),
    Operation(name="brokers.list", method="GET", path="/brokers", wants=NoParameters,
              gives=list[BrokerNow], summary="Brokers, those that left lately too",
              handler=list_brokers),
    Operation(name="history.show", method="GET", path="/history", wants=HistoryWanted,
              gives=History, summary="A curve of the last hour", handler=show_history),
)  # fmt: skip
