"""Quotas of one account on a shared broker: rates, and shares of bounded resources. A request
counts once its account is proved."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.effects import Replace
from escrowmq.base.message import Property
from escrowmq.broker.access.rates import RateLimit, TokenBuckets, flow_control_refusal
from escrowmq.broker.incoming_request import Question
from escrowmq.broker.output import Output
from escrowmq.broker.peer import Peer
from escrowmq.delivery import auto_created
from escrowmq.delivery.auto_created import AutoCreatedFile
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.txn.pending import PendingHalves

_log = logging.getLogger(__name__)

_NEVER_MS: Final = (1 << 62) - 1

_REPLIES: Final = frozenset({Request.SEND_REPLY_MESSAGE, Request.SEND_REPLY_MESSAGE_V2})
_SENDS: Final = {
    Request.SEND_MESSAGE: ("topic", "properties"),
    Request.SEND_MESSAGE_V2: ("b", "i"),
}
"""By request code: the names of the fields that hold the topic and the properties."""

_HALF: Final = f"{Property.TRAN_MSG}\x01"


class Quotas:
    """Counts the use of each account, so that an account at its limit does not affect the
    others."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        topics: TopicTable,
        groups: GroupTable,
        polls_counts: Counter[str],
        output: Output,
        pending: PendingHalves,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._groups = groups
        self._polls_counts = polls_counts
        self._output = output
        self._pending = pending
        self._buckets = TokenBuckets()
        self._free_buckets = TokenBuckets()
        self._connections: Counter[str] = Counter()
        self.refused_count = 0
        self._saved_changes = 0
        self._save_at_ms = 0

    def judge(self, request: Question) -> Refusal | None:
        """Count a request for its account. Return the refusal if it exceeds a quota."""
        account = request.account
        reason = self._exceeded_limit(request)
        if not reason:
            return None
        self.refused_count += 1
        return flow_control_refusal(
            request, f"account {account} asks for more than {reason} allows"
        )

    def _exceeded_limit(self, request: Question) -> str:
        return (
            self._count_connection(request.peer, request.account)
            or self._buckets.count_request(request.account, request, self._account_rate())
            or self._exceeded_by_kind(request)
        )

    def _account_rate(self) -> RateLimit:
        settings = self._settings
        return RateLimit(
            settings.account_requests_per_s,
            settings.account_bytes_per_s,
            "escrowAccountRequestsPerSecond",
            "escrowAccountBytesPerSecond",
        )

    def count_plain(self, peer: Peer, account: str, topic: str, size: int, now_ms: int) -> bool:
        """Count one or several plain messages of an account. If `judge` must decide about them,
        count nothing and return False."""
        if peer.counted_for != account or topic == self._settings.trace_topic:
            return False
        return not self._buckets.count_size(account, size, self._account_rate(), now_ms)

    def uncount(self, account: str, size: int) -> None:
        """Subtract an admitted message that was not stored; the access check will count its request
        again."""
        self._buckets.uncount(account, size)

    def _exceeded_by_kind(self, request: Question) -> str:
        code = request.command.code
        if request.row.is_read:
            return self._exceeded_poll_limit(request.account)
        if code in _REPLIES:
            return self._exceeded_free_rate(request)
        fields = _SENDS.get(code)
        if fields is None:
            return ""
        ext = request.ext
        if ext.get(fields[0]) == self._settings.trace_topic:
            return self._exceeded_free_rate(request)
        return self._exceeded_half_limit(request.account, ext.get(fields[1], ""))

    def _exceeded_poll_limit(self, account: str) -> str:
        most = self._settings.account_polls_max
        if most and self._polls_counts[account] >= most:
            return f"escrowAccountPolls={most}"
        return ""

    def _exceeded_free_rate(self, request: Question) -> str:
        """Count a request that needs no right: a trace, which every account may send, or a reply,
        which is pushed to the requesting client. Return the quota that it exceeds, else an empty
        text."""
        most = self._settings.account_free_bytes_per_s
        rate = RateLimit(0, most, "", "escrowAccountFreeBytesPerSecond")
        return self._free_buckets.count_request(request.account, request, rate)

    def _exceeded_half_limit(self, account: str, properties: str) -> str:
        settings = self._settings
        percent = settings.account_pending_percent
        most = settings.pending_max * percent // 100
        if not percent or self._pending.sources.accounts[account] < max(1, most):
            return ""
        # Checked last, because it is costly: very few sends come from an account at its limit.
        if not properties.startswith(_HALF) and f"\x02{_HALF}" not in properties:
            return ""
        return (
            f"escrowAccountPendingPercent={percent} of escrowPendingMax={settings.pending_max}, "
            "end some transactions first: it"
        )

    # -- names -------------------------------------------------------------------------------

    def load(self, data: bytes | None) -> None:
        """Read which account created which topics and groups. If the file is unreadable, existing
        names belong to no account."""
        try:
            file = msgspec.json.decode(data or b"{}", type=AutoCreatedFile)
        except (msgspec.DecodeError, UnicodeDecodeError):
            _log.warning(
                "%s cannot be read: existing names count for no account", auto_created.PATH
            )
            return
        self._topics.made.load(file.topics)
        self._groups.made.load(file.groups)
        self._topics.made_retries.load(file.retries)

    def wake(self, now_ms: int) -> None:
        """Save which account created which names, if a save is due."""
        if now_ms >= self.wake_at_ms():
            self._save_at_ms = now_ms + self._settings.offsets_flush_ms
            for path, data in self.final_files():
                self._output.add_effect(Replace(path, data))

    def wake_at_ms(self) -> int:
        """The time of the next save; never if nothing has changed."""
        return _NEVER_MS if self._names_version == self._saved_changes else self._save_at_ms

    def final_files(self) -> list[tuple[str, bytes]]:
        """Return the file to write when the broker stops; nothing if it is unchanged."""
        if self._names_version == self._saved_changes:
            return []
        self._saved_changes = self._names_version
        file = AutoCreatedFile(
            topics=self._topics.made.names_by_account(),
            groups=self._groups.made.names_by_account(),
            retries=self._topics.made_retries.names_by_account(),
        )
        return [(auto_created.PATH, msgspec.json.encode(file))]

    @property
    def _names_version(self) -> int:
        topics = self._topics
        return topics.made.changes + topics.made_retries.changes + self._groups.made.changes

    # -- connections -------------------------------------------------------------------------

    def _count_connection(self, peer: Peer, account: str) -> str:
        """Count a connection for the account that it proved last. Return the exceeded limit, else
        an empty text."""
        if peer.counted_for == account:
            return ""
        most = self._settings.account_connections_max
        if most and self._connections[account] >= most:
            return f"escrowAccountConnections={most}"
        self.uncount_connection(peer)
        self._connections[account] += 1
        peer.counted_for = account
        return ""

    def uncount_connection(self, peer: Peer) -> None:
        """Subtract an ended connection from those of its account."""
        account, peer.counted_for = peer.counted_for, ""
        if account:
            self._connections[account] -= 1
            assert self._connections[account] >= 0, account
            if not self._connections[account]:
                del self._connections[account]
