"""The tables of topics and groups are saved before anybody is told of their change."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.ports import Disk
from escrowmq.broker.nameserver_registration import Registration
from escrowmq.broker.start_checks import GROUPS_FILE, TOPICS_FILE
from escrowmq.delivery.subscriptions import GroupTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError

_log = logging.getLogger(__name__)

_AGAIN_MS: Final = 1_000


class Tables:
    """Saves them, and has the name servers told."""

    def __init__(
        self, topics: TopicTable, groups: GroupTable, disk: Disk, registration: Registration
    ) -> None:
        self._topics, self._groups = topics, groups
        self._disk = disk
        self._registration = registration
        self._again_ms = 0
        self._failed_at = (0, 0)

    @property
    def are_changed(self) -> bool:
        """Whether one of them is not saved."""
        return self._topics.is_changed or self._groups.is_changed

    def save(self) -> None:
        """Save what has changed; StorageError when that cannot be done."""
        if self._topics.is_changed:
            self._disk.replace(TOPICS_FILE, self._topics.save())
            self._topics.saved()
        if self._groups.is_changed:
            self._disk.replace(GROUPS_FILE, self._groups.save())
            self._groups.saved()

    def save_at_start(self, now_ms: int) -> None:
        """The same where nobody asked for what has changed: it can wait."""
        try:
            self.save()
        except StorageError as error:
            self._put_off(now_ms)
            _log.error("%s; it is tried again until it is saved", error)

    @property
    def _wishes(self) -> tuple[int, int]:
        return self._topics.wishes_count, self._groups.wishes_count

    def _put_off(self, now_ms: int) -> None:
        self._again_ms, self._failed_at = now_ms + _AGAIN_MS, self._wishes

    def save_and_tell(self, now_ms: int) -> None:
        """The same; whoever changed them is not answered when that fails. All others are, and it
        is tried again in a while: a full disk must not keep transactions from ending."""
        is_new = self._wishes != self._failed_at
        if not is_new and now_ms < self._again_ms:
            return
        try:
            self.save()
        except StorageError:
            self._put_off(now_ms)
            if is_new:
                raise
            return
        self._again_ms = 0
        self._registration.tell_changes(now_ms)
