"""Shares the offsets that a broker keeps between accounts: all are in memory, and in one file."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable

from escrowmq.base import fixed_limits
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.delivery.auto_created import AutoCreateQuota

_log = logging.getLogger(__name__)


class OffsetQuotas:
    """Decides whether a group may get an offset in one more queue. The offsets are counted every
    few seconds, not with each commit."""

    def __init__(self, created: AutoCreateQuota) -> None:
        self._created = created
        self.is_crowded = False
        """Whether some group may get no more offsets."""
        self._count = 0
        self._accounts: dict[str, int] = {}
        """The accounts that may have no more offsets, with their numbers."""
        self._refused = RepeatedErrors()

    def count_by_account(self, counts: Iterable[tuple[str, int]]) -> None:
        """Count the offsets, given as groups with a number each."""
        counts = list(counts)
        self._count = sum(number for _, number in counts)
        most = fixed_limits.OFFSETS_OF_ACCOUNT_MAX
        of_accounts: Counter[str] = Counter()
        if self._count >= most:
            account_of = self._created.account_of
            for group, number in counts:
                of_accounts[account_of(group)] += number
        self._accounts = {
            account: number for account, number in of_accounts.items() if account and number >= most
        }
        self.is_crowded = bool(self._accounts) or self._count >= fixed_limits.OFFSETS_MAX

    def why_not(self, group: str, now_ms: int) -> str:
        """Return why a group may get no offset in one more queue; an empty text if it may. The
        reason is logged."""
        account = self._created.account_of(group)
        if self._count >= fixed_limits.OFFSETS_MAX:
            reason = f"{self._count} offsets are kept, the most that a broker keeps"
        elif account in self._accounts:
            reason = f"{self._accounts[account]} offsets of groups of account {account} are kept"
        else:
            return ""
        if (end := self._refused.suppressed_note(group, now_ms)) is not None:
            _log.warning(
                "group %s gets no offsets in more queues; delete unused groups: %s%s",
                group, reason, end,
            )  # fmt: skip
        return reason
