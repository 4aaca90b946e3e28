"""Repairs differences, one at a time. Each is verified again before its repair. A dry run is the
default."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import msgspec

import escrowmq
from escrowmq.base.message import Property
from escrowmq.base.own_properties import REDONE
from escrowmq.client.announced_commits import ROLLED_BACK, Member, recorded_outcomes
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.due_times import due_ms
from escrowmq.codec.key_value_line import format_audit_line
from escrowmq.errors import EscrowMQError, NotFound, NotSupported, PermissionDenied
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.keyed_sends import KeyedSender
from escrowmq.pipeline.brokers.pacing import RateLimiter
from escrowmq.pipeline.reconcile.differences import DifferenceClass, Repair

_log = logging.getLogger(__name__)
_audit = logging.getLogger("escrowmq.audit")

PER_S: Final = 50.0
_OPEN: Final = ("waiting", "asked", "parked")


class Business(Protocol):
    """The consumer's application, which processes each message once (`compensation.Business`)."""

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        """Process a message and record its id, in one transaction of the database. Returns False,
        and does nothing, if the id is already recorded."""


class RepairResult(enum.Enum):
    """The result of a repair."""

    WOULD = "would be redone"
    """The run was dry; without that it would have been repaired."""

    DONE = "redone"
    SETTLED = "settled meanwhile"
    """It was no longer a difference when it was verified again."""

    PROPOSED = "proposed"
    """Only people can repair it; the proposal is in the table."""

    FAILED = "failed"
    """The repair failed; the next run tries again."""


class RepairRecord(msgspec.Struct, frozen=True):
    """The record of one difference's repair."""

    kind: str
    message_id: str
    topic: str
    broker: str
    deed: RepairResult
    detail: str = ""


class _DifferenceMessage(msgspec.Struct, frozen=True):
    """The message that a difference is about."""

    message_id: str
    topic: str
    broker: str


class Redo:
    """Repairs what a program can repair: has overdue halves checked, stores missing final messages,
    passes messages to the business.

    >>> redo = Redo(admin, sender, business=shop)
    >>> redo.run(open_differences.toLocalIterator())
    Counter({'would be redone': 3})
    """

    def __init__(
        self,
        admin: escrowmq.Admin,
        sender: KeyedSender,
        *,
        business: Business | None = None,
        per_s: float = PER_S,
        is_dry: bool = True,
    ) -> None:
        self.findings: list[RepairRecord] = []
        self._admin = admin
        self._sender = sender
        self._business = business
        self._pace = RateLimiter(per_s)
        self._is_dry = is_dry
        self._deeds: Mapping[str, Callable[[_DifferenceMessage], tuple[RepairResult, str]]] = {
            DifferenceClass.OVERDUE: self._request_check,
            DifferenceClass.NO_FINAL: self._store_final,
            DifferenceClass.MESSAGE_WITHOUT_ROW: self._pass_to_business,
        }

    def run(
        self, differences: Iterable[Any], *, may_go_on: Callable[[], bool] = lambda: True
    ) -> Counter[str]:
        """Repair rows of differences, each message once per class; return the number of each
        result. Each repair, or proposal, is a line in the log `escrowmq.audit`."""
        seen: set[tuple[str, str, str]] = set()
        for row in differences:
            kind = row["class"]
            lost = _DifferenceMessage(
                row["messageId"] or "", row["topic"] or "", row["broker"] or ""
            )
            # A producer that got no answer sends a half to another broker under the same id.
            key = (kind, lost.broker, lost.message_id)
            if kind == DifferenceClass.PENDING or key in seen:
                continue
            if not may_go_on():
                _log.warning("the lease is lost; the rest is left to its new holder")
                break
            seen.add(key)
            repair, detail = self._repair(kind, lost, row["repair"])
            finding = RepairRecord(kind, lost.message_id, lost.topic, lost.broker, repair, detail)
            self.findings.append(finding)
            self._log_repair(finding)
        return Counter(finding.deed.value for finding in self.findings)

    def _repair(self, kind: str, lost: _DifferenceMessage, repair: str) -> tuple[RepairResult, str]:
        work = self._deeds.get(kind)
        if work is None or repair in (Repair.BY_HAND, Repair.TIMER):
            return RepairResult.PROPOSED, repair or ""
        self._pace.wait()
        try:
            return work(lost)
        except NotSupported:
            return (
                RepairResult.PROPOSED,
                f"{repair}; this broker takes no orders, it asks by itself",
            )
        except PermissionDenied:
            raise  # so it would be with every one of them
        except EscrowMQError as error:
            return RepairResult.FAILED, str(error)

    # -- one class each ----------------------------------------------------------------------

    def _request_check(self, lost: _DifferenceMessage) -> tuple[RepairResult, str]:
        states = self._transaction_states(lost)
        if not states & set(_OPEN):
            return RepairResult.SETTLED, ", ".join(sorted(states))
        if self._is_dry:
            return RepairResult.WOULD, "its producers would be asked"
        count = self._admin.transactions.check(
            lost.message_id, broker=lost.broker, reason="reconciliation"
        )
        return RepairResult.DONE, f"{count} asked about"

    def _store_final(self, lost: _DifferenceMessage) -> tuple[RepairResult, str]:
        if self._has_final(lost):
            return RepairResult.SETTLED, "its message is there"
        half = self._admin.messages.prepared(lost.message_id, topic=lost.topic, broker=lost.broker)
        if self._is_open(lost):  # only its producer's announcement says committed
            if self._is_dry:
                return RepairResult.WOULD, "it would be committed"
            self._admin.transactions.commit(
                lost.message_id, topic=lost.topic, broker=lost.broker, reason="reconciliation"
            )
            return RepairResult.DONE, "it was committed"
        member = Member(lost.message_id, lost.topic)
        if recorded_outcomes(self._admin, member, broker=lost.broker) == ROLLED_BACK:
            return (
                RepairResult.PROPOSED,
                "its broker has it on record as rolled back; decide by hand",
            )
        if is_purged(self._admin, half):
            return RepairResult.PROPOSED, "its topic has nothing as old as it: it was deleted since"
        if self._is_dry:
            return RepairResult.WOULD, "its message would be stored again"
        queue_id = half.system.get(Property.REAL_QID, "")
        # Send it to the broker of its half, to any queue: the next run looks for it there.
        queue = MessageQueue(
            lost.topic, half.broker_name, int(queue_id) if queue_id.isdecimal() else 0
        )
        at_ms = due_ms(half)
        is_due = at_ms <= SystemClock().now_ms()
        message = escrowmq.Message(
            lost.topic, half.body, keys=half.keys, properties=half.properties,
            order_key=half.order_key, flag=half.flag,
            deliver_at=None if is_due else at_ms / 1000,
        )  # fmt: skip
        own = {REDONE: "true"}
        if half.tag:  # not as the message's tag: the SDK refuses some that other clients send
            own[Property.TAGS] = half.tag
        self._sender.send(message, key=lost.message_id, properties=own, queue=queue)
        return RepairResult.DONE, "its message was stored again"

    def _pass_to_business(self, lost: _DifferenceMessage) -> tuple[RepairResult, str]:
        if self._business is None:
            return RepairResult.PROPOSED, "give the business, and its message is handed to it"
        message = self._admin.messages.get(lost.message_id, topic=lost.topic, broker=lost.broker)
        if self._is_dry:
            return RepairResult.WOULD, "its message would be handed to the business"
        try:
            is_new = self._business.apply(message)
        except Exception as error:  # noqa: BLE001 - the user's code; told, and tried again
            _log.exception("%s could not be redone", lost.message_id)
            return RepairResult.FAILED, f"{type(error).__name__}: {error}"
        return (
            (RepairResult.DONE, "")
            if is_new
            else (RepairResult.SETTLED, "the business has done it before")
        )

    def _has_final(self, lost: _DifferenceMessage) -> bool:
        try:
            self._admin.messages.get(lost.message_id, topic=lost.topic, broker=lost.broker)
        except NotFound:
            return False
        return True

    def _is_open(self, lost: _DifferenceMessage) -> bool:
        try:
            return bool(self._transaction_states(lost) & set(_OPEN))
        except (NotFound, NotSupported):
            return False

    def _transaction_states(self, lost: _DifferenceMessage) -> set[str]:
        found = self._admin.transactions.show(lost.message_id, topic=lost.topic, broker=lost.broker)
        return {one.state for one in found}

    def _log_repair(self, finding: RepairRecord) -> None:
        line = {
            "class": finding.kind,
            "messageId": finding.message_id,
            "topic": finding.topic,
            "broker": finding.broker,
            "deed": finding.deed.value,
            "detail": finding.detail,
        }
        _audit.info("%s", format_audit_line("reconciliation", line))


def is_purged(admin: escrowmq.Admin, half: escrowmq.ReceivedMessage) -> bool:
    """Whether a half's topic was deleted, and perhaps recreated: its topic on the half's broker is
    empty, or has only newer messages although none expired."""
    status = admin.topics.describe(half.topic).queues
    own = [one for one in status if one.queue.broker_name == half.broker_name]
    if any(one.min_offset for one in own):
        return False
    held = [one.queue for one in own if one.max_offset]
    first = [admin.messages.at(queue, 0)[0] for queue in held]
    return all(one.stored_ms > half.stored_ms for one in first)
