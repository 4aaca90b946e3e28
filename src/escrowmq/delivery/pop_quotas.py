"""Shares the check points that a broker may have in memory between groups and accounts: their
messages may be invisible for as long as a client likes."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base import fixed_limits
from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.delivery.pop_check_points import CheckPoints

FEW: Final = 1_000
"""Groups with fewer check points than this may use the reserve, also beyond their account's
share."""

_log = logging.getLogger(__name__)


class PopQuotas:
    """Decides whether a group may pop more."""

    def __init__(self, popped: CheckPoints) -> None:
        self._popped = popped
        self._groups: dict[str, set[str]] = {}
        """The groups with which each account has popped since the start."""
        self._refused = RepeatedErrors()

    def note_popper(self, account: str, group: str) -> None:
        """Note that an account pops with a group. Without access control it is empty."""
        groups = self._groups.get(account)
        if groups is None:
            groups = self._groups[account] = set()
        groups.add(group)

    def may_pop_more(self, group: str, now_ms: int, account: str = "") -> bool:
        """Whether a group may have more messages in flight. If not, that is logged."""
        count, total = self._popped.counts[group], self._popped.count
        total_max = fixed_limits.CHECK_POINTS_MAX
        if count >= FEW:
            total_max -= fixed_limits.CHECK_POINTS_RESERVED
        if total >= total_max:
            reason = f"{total} pops of all groups are not acknowledged"
        elif count >= fixed_limits.CHECK_POINTS_OF_GROUP_MAX:
            reason = f"{count} of its pops are not acknowledged"
        elif self._exceeds_share(account, group):
            reason = f"too many pops of account {account} are not acknowledged"
        else:
            return True
        if (end := self._refused.suppressed_note(group, now_ms)) is not None:
            _log.warning("group %s gets no more messages for now: %s%s", group, reason, end)
        return False

    def _exceeds_share(self, account: str, popping: str) -> bool:
        counts, most = self._popped.counts, fixed_limits.CHECK_POINTS_OF_ACCOUNT_MAX
        if counts[popping] < FEW:  # all applications may use one account
            most += fixed_limits.CHECK_POINTS_RESERVED
        if self._popped.count < most:
            return False
        groups = self._groups[account] = {
            group for group in self._groups.get(account, ()) if group in counts or group == popping
        }
        return sum(counts[group] for group in groups) >= most
