"""Saves the tables of topics and groups before their changes are acknowledged. If that fails, the
answers say so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from escrowmq.base.answer import HELD, Answer, Reply
from escrowmq.base.codes import Response
from escrowmq.base.ports import Disk
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import Question
from escrowmq.broker.upkeep.nameserver_registration import Registration
from escrowmq.broker.upkeep.start_checks import GROUPS_FILE, TOPICS_FILE
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import StorageError

_log = logging.getLogger(__name__)

_AGAIN_MS: Final = 1_000


class TableSaver:
    """Saves the tables of topics and groups, answers the requests that changed them, and registers
    the changes at name servers."""

    def __init__(
        self,
        topics: TopicTable,
        groups: GroupTable,
        *,
        disk: Disk,
        registration: Registration,
        answers: AnswerSender,
    ) -> None:
        self._topics, self._groups = topics, groups
        self._disk = disk
        self._registration = registration
        self._answers = answers
        self._unsaid: list[tuple[Question, Answer]] = []
        self._retry_ms = 0
        self._seen = self._failed_at = (0, 0)

    @property
    def has_unsaved_changes(self) -> bool:
        """Whether any table has unsaved changes."""
        return self._topics.is_changed or self._groups.is_changed

    def save(self) -> None:
        """Save the changed tables. Raises StorageError if that fails."""
        if self._topics.is_changed:
            self._disk.replace(TOPICS_FILE, self._topics.content_to_save())
            self._topics.mark_saved()
        if self._groups.is_changed:
            self._disk.replace(GROUPS_FILE, self._groups.content_to_save())
            self._groups.mark_saved()

    def save_at_start(self, now_ms: int) -> None:
        """Save tables that changed at the start, without a request; retry later if that fails."""
        try:
            self.save()
        except StorageError as error:
            self._postpone_save(now_ms)
            _log.error("%s; retrying until it is saved", error)

    def save_at_end(self, what: str, save: Callable[[], None]) -> None:
        """Save one of the files that are saved when the broker stops. If that fails, log it and
        keep the previous version."""
        try:
            save()
        except (StorageError, OSError) as error:
            _log.error("%s (%s); the next start will read the version saved before", error, what)

    @property
    def _change_counts(self) -> tuple[int, int]:
        return self._topics.requested_changes_count, self._groups.requested_changes_count

    def _postpone_save(self, now_ms: int) -> None:
        self._retry_ms, self._failed_at = now_ms + _AGAIN_MS, self._change_counts

    def answer_when_saved(self, request: Question, reply: Reply) -> None:
        """Send the answer to a request: now, or once the changes that it made to tables are
        saved."""
        is_changed = self._topics.is_changed or self._groups.is_changed
        has_changed = is_changed and self._change_counts != self._seen
        if has_changed:
            # This applies to a held answer too; otherwise the next request of this read would count
            # as the one that changed the table, and get the error of a failed save.
            self._seen = self._change_counts
        if reply is HELD:
            return
        if has_changed and isinstance(reply, Answer):
            self._unsaid.append((request, reply))
        else:
            self._answers.send(request, reply)

    def save_and_answer(self, now_ms: int) -> None:
        """Save the changed tables, and answer the requests that changed them. If saving fails, the
        answers say so, and saving is retried after a pause."""
        # A request after the failure is tried immediately, and its answer reports the result.
        # Requests count, not changes, because one may repeat the change that failed.
        is_new = self._change_counts != self._failed_at
        if not is_new and now_ms < self._retry_ms:
            return
        unsaid, self._unsaid = self._unsaid, []
        self._seen = self._change_counts
        try:
            self.save()
        except StorageError as error:
            self._postpone_save(now_ms)
            if is_new:
                _log.error("%s; retrying until it is saved", error)
            reason = f"{error}; the change is in force, and saving it is retried"
            for asked, _ in unsaid:
                self._answers.send(asked, Answer(Response.SYSTEM_ERROR, remark=reason))
            return
        for asked, reply in unsaid:
            self._answers.send(asked, reply)
        self._retry_ms = 0
        self._registration.register_changes(now_ms)
