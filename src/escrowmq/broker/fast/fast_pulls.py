"""The fast path for pulls: serves pulls that a connection repeats and that find messages, from the
bytes of their frames to the bytes of the replies.

The general path (remoting, serving, on_pull) defines what these requests mean. A request is served
here only if its result is the same as there. So it must be like one that was judged there, and
nothing that the decision depends on may have changed (broker/reads/pull_decisions). Its group must
have no pending reset. There must be recent messages that this process has written or verified
(store/queue_reading, `reply`). A request in any doubt takes the general path, with nothing done.
A test compares replies, files and metrics of both paths byte for byte."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import PULL_MESSAGES_MAX, PULL_SIZE_MAX
from escrowmq.broker.answers.request_times import RequestLatency
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.broker.reads.pull_decisions import CachedDecision, PullJudge
from escrowmq.codec.headers import PullHeader
from escrowmq.codec.pulled_reply import pulled_template
from escrowmq.codec.repeated_requests import Match, RequestTemplate
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.stats import Stats
from escrowmq.store.results import GetStatus
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)

_FOUND: Final = GetStatus.FOUND.name
_VARYING: Final = ("queue_id", "queue_offset", "commit_offset")


_Found = tuple[bytes, int, int, int]
"""A reply frame, the number and size of its messages, and the next offset."""


class _PullPlan:
    """How to serve further pulls of one shape."""

    __slots__ = (
        "code", "codes", "commits", "count_max", "group", "header", "numbers_at", "pieces",
        "remembered", "size_max", "topic",
    )  # fmt: skip

    def __init__(
        self, known: RequestTemplate, header: PullHeader, remembered: CachedDecision
    ) -> None:
        self.code = known.command.code
        self.header = header
        """The header of the first such pull. Only its numbers (queue, offsets) differ in the
        others."""
        self.group, self.topic = header.consumer_group, header.topic
        self.count_max = min(header.max_msg_nums, PULL_MESSAGES_MAX)
        self.size_max = min(header.max_msg_bytes or PULL_SIZE_MAX, PULL_SIZE_MAX)
        self.numbers_at = tuple(map(known.names.index, _VARYING))
        """The positions of the varying values among the numbers of a request."""
        self.remembered = remembered
        judged = remembered.judged
        self.commits = judged.commits
        self.codes = judged.selector.codes
        flags = judged.topic.topic_sys_flag, judged.group.group_sys_flag
        self.pieces = pulled_template(Response.SUCCESS, _FOUND, flags).pieces


class FastPulls:
    """Serves repeated pulls of a connection that find messages."""

    def __init__(
        self,
        *,
        store: Store,
        offsets: OffsetTable,
        stats: Stats,
        judge: PullJudge,
        output: Output,
        latency: RequestLatency,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._stats = stats
        self._judge = judge
        self._output = output
        self._latency = latency
        self.served_count = 0
        """The number of requests that were served here."""

    def serve(self, peer: Peer, match: Match, others_size: int, now_ms: int) -> bool:
        """Answer a pull if it can be served here; return whether it was. The reply is written
        immediately if the input holds nothing else (`others_size` is 0)."""
        known, opaque, numbers, _ = match
        plan = known.plan or self._plan_of(known)
        if type(plan) is not _PullPlan:
            return False
        queue_at, offset_at, commit_at = plan.numbers_at
        queue_id, group, topic = numbers[queue_at], plan.group, plan.topic
        try:
            found = self._find(plan, queue_id, numbers[offset_at], opaque)
        except Exception:  # noqa: BLE001 - nothing has happened yet, and the general path can tell
            _log.exception("a pull of %s takes the general path", peer.address)
            return False
        offsets = self._offsets
        if found is None or offsets.has_reset(group, topic, queue_id):
            return False
        if offsets.quotas.is_crowded and offsets.get(group, topic, queue_id) < 0:
            return False  # it may be refused
        if not self._judge.is_still_valid(plan.remembered, plan.header, queue_id):
            known.attach_plan(None)  # the judgement is no longer valid
            return False
        frame, count, size, following = found
        offsets.note_pulled(group, topic, queue_id, following)
        self._stats.count_gets(group, topic, count, size)
        if plan.commits:
            offsets.commit(group, topic, queue_id, numbers[commit_at], now_ms)
        self._latency.immediate_counts[plan.code, Response.SUCCESS, 0] += 1
        self.served_count += 1
        if others_size:
            self._output.send(peer.id, frame)
        else:
            self._output.write_now(peer.id, [frame])
        return True

    def _find(
        self, plan: _PullPlan, queue_id: int, queue_offset: int, opaque: int
    ) -> _Found | None:
        """Return the reply to a pull, if there are messages that this process has written or
        verified."""
        wish = (
            plan.topic, queue_id, queue_offset, plan.count_max, plan.size_max, plan.codes,
        )  # fmt: skip
        return self._store.reply(wish, plan.pieces, opaque)

    def _plan_of(self, known: RequestTemplate) -> _PullPlan | None:
        """Create the plan for further requests like this one; None if the general path has not
        judged one yet."""
        command, header = known.command, known.command.header
        if command.flag or not isinstance(header, PullHeader):
            return None
        if not all(name in known.names for name in _VARYING):
            return None
        remembered = self._judge.find_cached(command.code, header)
        if remembered is None:
            return None
        plan = _PullPlan(known, header, remembered)
        known.attach_plan(plan)
        return plan
