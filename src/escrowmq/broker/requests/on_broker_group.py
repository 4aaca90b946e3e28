"""What other members of a broker group, their name server and their controller ask or tell."""

from __future__ import annotations

from escrowmq.base.answer import DONE, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.broker.asked import Asked
from escrowmq.delivery.timer import TimerQueue


class MemberHandlers:
    """GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61), NOTIFY_MIN_BROKER_ID_CHANGE (905),
    RESET_MASTER_FLUSH_OFFSET (908), GET_BROKER_EPOCH_CACHE (1007),
    NOTIFY_BROKER_ROLE_CHANGED (1008)."""

    def __init__(self, settings: BrokerSettings, timer: TimerQueue) -> None:
        self._settings = settings
        self._timer = timer

    def timer_check_point(self, asked: Asked[None]) -> Reply:
        """How far the timer is."""
        if not self._settings.has_timer:
            return Refusal(Response.SYSTEM_ERROR, "The checkpoint is null")
        body = self._timer.check_point(asked.now_ms)
        return Answer(body=body)

    def timer_counts(self, asked: Asked[None]) -> Reply:
        """How many messages wait for their time, by topic."""
        if not self._settings.has_timer:
            remark = "The timer message store is null"
            return Refusal(Response.SYSTEM_ERROR, remark)
        body = self._timer.counts.encode()
        return Answer(body=body)

    def hear(self, asked: Asked[None]) -> Reply:
        """News for slaves and for brokers under a controller; a master alone has no use for it,
        and answers as RocketMQ's (AdminBrokerProcessor) does."""
        return DONE

    def epochs(self, asked: Asked[None]) -> Reply:
        """There is no controller."""
        remark = "this request only for controllerMode "
        return Refusal(Response.SYSTEM_ERROR, remark)
