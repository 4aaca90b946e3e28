"""Examines the difference of both sets, message by message. Each message is looked up, and
processed again where necessary."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
import redis

import escrowmq
from escrowmq.client.announced_commits import (
    ROLLED_BACK,
    Member,
    Sets,
    parse_member,
    recorded_outcomes,
)
from escrowmq.client.broker_clocks import BrokerClocks
from escrowmq.client.due_times import due_ms
from escrowmq.codec.key_value_line import format_audit_line
from escrowmq.compensation.consuming import Business
from escrowmq.errors import EscrowMQError, NotFound, RouteMissing
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)
_audit = logging.getLogger("escrowmq.audit")

GRACE_S: Final = 60.0
"""Messages younger than this many seconds may still be in flight to their consumer."""


class Fate(enum.Enum):
    """The result for a commit that was announced and not consumed."""

    WAITING = "waiting"
    """The message is young: it may still be in flight, or its delay is not over."""

    LOST = "lost"
    """It must be processed again. Only a dry run reports this: other runs process it."""

    REDONE = "redone"
    DONE_BEFORE = "done before"
    """The business had processed it: its id was missing from the set."""

    ROLLED_BACK = "rolled back"
    """The broker recorded a rollback, although the producer announced a commit."""

    MISSING = "missing"
    """No broker has its message any more, or none has its topic."""

    FAILED = "failed"
    """The business, a broker or the Redis server failed; the next run tries again."""


class Finding(msgspec.Struct):
    """One commit that was announced and not consumed."""

    member: Member
    fate: Fate
    detail: str = ""


class Report(msgspec.Struct):
    """The results of one run."""

    findings: list[Finding]

    @property
    def counts(self) -> dict[str, int]:
        """The number of commits by fate."""
        counts = Counter(finding.fate.value for finding in self.findings)
        return {fate.value: counts[fate.value] for fate in Fate}


class Compensator:
    """Finds lost commits and redoes them. A dry run is the default.

    >>> compensator = Compensator(admin, sets, business)
    >>> compensator.run().counts["lost"]
    0
    >>> report = compensator.run(is_dry=False)

    Two concurrent runs do no harm to a business that records ids, but waste work: hold a
    `RedisLease`, and pass its `is_held` as `may_go_on`."""

    def __init__(
        self,
        admin: escrowmq.Admin,
        sets: Sets,
        business: Business,
        *,
        grace_s: float = GRACE_S,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._admin = admin
        self._sets = sets
        self._business = business
        self._grace_s = grace_s
        self._now_ms = now_ms or SystemClock().now_ms

    def run(self, *, is_dry: bool = True, may_go_on: Callable[[], bool] = lambda: True) -> Report:
        """Compare the sets and deal with each difference. All except those waiting are recorded in
        the log `escrowmq.audit`, a line each."""
        report = Report([])
        clocks = BrokerClocks(self._admin.brokers.runtime, SystemClock().now_ms)
        for text in self._lost_members():
            if not may_go_on():
                _log.warning("the lease is lost; the rest is left to its new holder")
                break
            finding = self._redo(parse_member(text), clocks, is_dry=is_dry)
            report.findings.append(finding)
            if finding.fate is not Fate.WAITING:
                self._log_finding(finding)
            if finding.fate in (Fate.REDONE, Fate.DONE_BEFORE):
                self._note_consumed(finding)
        return report

    def _note_consumed(self, finding: Finding) -> None:
        """Add the message to the set of consumed ones. The result is logged first, because the
        business has processed the message even if this fails."""
        try:
            self._sets.consume([str(finding.member)])
        except redis.RedisError as error:
            finding.detail = f"{finding.fate.value}, but not in the consumed set: {error}"
            finding.fate = Fate.FAILED
            self._log_finding(finding)

    def _lost_members(self) -> Iterator[str]:
        for some in self._sets.compare():
            yield from some.lost

    def _redo(self, member: Member, clocks: BrokerClocks, *, is_dry: bool) -> Finding:
        try:
            message = self._admin.messages.prepared(member.message_id, topic=member.topic)
            if recorded_outcomes(self._admin, member) == ROLLED_BACK:
                return Finding(member, Fate.ROLLED_BACK, "announced as committed all the same")
        except (NotFound, RouteMissing) as error:
            return Finding(member, Fate.MISSING, str(error))
        except EscrowMQError as error:
            return Finding(member, Fate.FAILED, str(error))
        now_ms = self._now_ms() + clocks.ahead_ms(message.broker_name)
        age_s = (now_ms - message.stored_ms) / 1000
        is_young = now_ms - due_ms(message) < self._grace_s * 1000
        if is_young or is_dry:
            fate = Fate.WAITING if is_young else Fate.LOST
            return Finding(member, fate, f"stored {age_s:.1f} s ago")
        try:
            is_new = self._business.apply(message)
        except Exception as error:  # noqa: BLE001 - the user's code; told, and tried again
            _log.exception("%s could not be redone", member)
            return Finding(member, Fate.FAILED, f"{type(error).__name__}: {error}")
        return Finding(member, Fate.REDONE if is_new else Fate.DONE_BEFORE)

    def _log_finding(self, finding: Finding) -> None:
        fields = {
            "messageId": finding.member.message_id,
            "topic": finding.member.topic,
            "fate": finding.fate.value,
            "detail": finding.detail,
        }
        _audit.info("%s", format_audit_line("compensation", fields))
