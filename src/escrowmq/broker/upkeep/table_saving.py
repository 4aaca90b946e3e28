"""Saves the tables of topics and groups before their changes are acknowledged: the request is
answered after that, or told why they could not be saved."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.answer import HELD, Answer, Reply
from escrowmq.base.codes import Response
from escrowmq.base.ports import Disk
from escrowmq.broker.answers.answer_delivery import Answers
from escrowmq.broker.asked import Question
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.broker.upkeep.start_checks import GROUPS_FILE, TOPICS_FILE
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError

_log = logging.getLogger(__name__)

_AGAIN_MS: Final = 1_000


class Tables:
    """Saves the tables of topics and groups, and updates the registration at name servers."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        *,
        disk: Disk,
        registration: Registration,
        answers: Answers,
    ) -> None:
        self._topics, self._groups = topics, groups
        self._disk = disk
        self._registration = registration
        self._answers = answers
        self._unsaid: list[tuple[Question, Answer]] = []
        self._retry_ms = 0
        self._seen = self._failed_at = (0, 0)

    @property
    def are_changed(self) -> bool:
        """Whether any table has unsaved changes."""
        return self._topics.is_changed or self._groups.is_changed

    def save(self) -> None:
        """Save what has changed; StorageError when that fails."""
        if self._topics.is_changed:
            self._disk.replace(TOPICS_FILE, self._topics.save())
            self._topics.saved()
        if self._groups.is_changed:
            self._disk.replace(GROUPS_FILE, self._groups.save())
            self._groups.saved()

    def save_at_start(self, now_ms: int) -> None:
        """Save what changed without a request: it can wait."""
        try:
            self.save()
        except StorageError as error:
            self._postpone(now_ms)
            _log.error("%s; retrying until it is saved", error)

    def save_at_end(self, what: str, save: Callable[[], None]) -> None:
        """Save one of the tables that are saved at the end. If that fails, its previous version
        stays, and the others are saved nevertheless."""
        try:
            save()
        except (StorageError, OSError) as error:
            _log.error("%s (%s); the next start will read the version saved before", error, what)

    @property
    def _wishes(self) -> tuple[int, int]:
        return self._topics.wishes_count, self._groups.wishes_count

    def _postpone(self, now_ms: int) -> None:
        self._retry_ms, self._failed_at = now_ms + _AGAIN_MS, self._wishes

    def answer(self, asked: Question, reply: Reply) -> None:
        """Send an answer now, or after its request's changes are saved. A held answer waits for
        something else, and a refused request has changed nothing that its sender knows of."""
        is_changed = self._topics.is_changed or self._groups.is_changed
        has_changed = is_changed and self._wishes != self._seen
        if has_changed:
            # This applies to a held answer too; otherwise the next request of this read would count
            # as the one that changed the table, and get the error of a failed save.
            self._seen = self._wishes
        if reply is HELD:
            return
        if has_changed and isinstance(reply, Answer):
            self._unsaid.append((asked, reply))
        else:
            self._answers.give(asked, reply)

    def save_and_answer(self, now_ms: int) -> None:
        """Save the changed tables, and answer the requests that changed them. If that fails, the
        answers say so, and it is retried after a while: a full disk must not keep transactions from
        ending."""
        # A wish that came after the failure is tried at once: its answer says how that went. Wishes
        # count, not changes, since it may repeat the one that failed.
        is_new = self._wishes != self._failed_at
        if not is_new and now_ms < self._retry_ms:
            return
        unsaid, self._unsaid = self._unsaid, []
        self._seen = self._wishes
        try:
            self.save()
        except StorageError as error:
            self._postpone(now_ms)
            if is_new:
                _log.error("%s; retrying until it is saved", error)
            reason = f"{error}; the change is in force, and saving it is retried"
            for asked, _ in unsaid:
                self._answers.give(asked, Answer(Response.SYSTEM_ERROR, remark=reason))
            return
        for asked, reply in unsaid:
            self._answers.give(asked, reply)
        self._retry_ms = 0
        self._registration.register_changes(now_ms)
