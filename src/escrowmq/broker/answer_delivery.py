"""Answers leave by the dialogue of whoever asked, once what they tell of is durable."""

from __future__ import annotations

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.broker_settings import StoreSettings
from escrowmq.base.codes import Flag
from escrowmq.broker.asked import Question
from escrowmq.broker.present_input import Moment
from escrowmq.broker.request_times import Latency
from escrowmq.broker.unsynced_answers import WaitingAnswer, WaitingAnswers
from escrowmq.store.store import Store


class Answers:
    """Gives them, and notes how long they took."""

    def __init__(
        self, store_settings: StoreSettings, store: Store, moment: Moment, latency: Latency
    ) -> None:
        self._store_settings = store_settings
        self._store = store
        self._moment = moment
        self._latency = latency
        self.waiting = WaitingAnswers()

    def give(
        self, asked: Question, reply: Answer | Refusal, *, since_ms: int | None = None
    ) -> None:
        """Say it, or keep it until what it tells of is durable: from the question's time on, or
        from a later one."""
        if (
            isinstance(reply, Answer)
            and reply.log_end
            and reply.log_end > self._store.durable_offset
            and not asked.command.flag & Flag.ONE_WAY
        ):
            since_ms = asked.now_ms if since_ms is None else since_ms
            until_ms = since_ms + self._store_settings.sync_timeout_ms
            self.waiting.keep(WaitingAnswer(asked, reply, reply.log_end, until_ms, self.say))
        else:
            self.say(asked, reply)

    def say(self, asked: Question, reply: Answer | Refusal) -> None:
        """Say it now."""
        asked.peer.dialogue.answer(asked.command, reply)
        row, took_ms = asked.row, self._moment.now_ms - asked.now_ms
        is_one_way = asked.command.flag & Flag.ONE_WAY
        if took_ms <= 0:
            self._latency.at_once[row.code, reply.code, is_one_way] += 1
        else:
            self._latency.note(row, reply.code, took_ms, is_one_way=is_one_way)
