"""What other members of a broker group, their name server and their controller ask or tell."""

from __future__ import annotations

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.command import encode_reply


class MemberHandlers:
    """GET_TIMER_CHECK_POINT (60), GET_TIMER_METRICS (61), NOTIFY_MIN_BROKER_ID_CHANGE (905),
    RESET_MASTER_FLUSH_OFFSET (908), GET_BROKER_EPOCH_CACHE (1007),
    NOTIFY_BROKER_ROLE_CHANGED (1008)."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.GET_TIMER_CHECK_POINT: self.timer_check_point,
            Request.GET_TIMER_METRICS: self.timer_counts,
            Request.NOTIFY_MIN_BROKER_ID_CHANGE: self.hear,
            Request.RESET_MASTER_FLUSH_OFFSET: self.hear,
            Request.GET_BROKER_EPOCH_CACHE: self.epochs,
            Request.NOTIFY_BROKER_ROLE_CHANGED: self.hear,
        }

    def timer_check_point(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """How far the timer is."""
        if not self._broker.settings.has_timer:
            return encode_reply(request, Response.SYSTEM_ERROR, remark="The checkpoint is null")
        assert self._broker.timer is not None
        body = self._broker.timer.check_point(now_ms)
        return encode_reply(request, Response.SUCCESS, body=body)

    def timer_counts(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """How many messages wait for their time, by topic."""
        if not self._broker.settings.has_timer:
            remark = "The timer message store is null"
            return encode_reply(request, Response.SYSTEM_ERROR, remark=remark)
        assert self._broker.timer is not None
        body = self._broker.timer.counts.encode()
        return encode_reply(request, Response.SUCCESS, body=body)

    def hear(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """News for slaves and for brokers under a controller; a master alone has no use for it,
        and answers as the peer's (AdminBrokerProcessor) does."""
        return encode_reply(request, Response.SUCCESS)

    def epochs(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """There is no controller."""
        remark = "this request only for controllerMode "
        return encode_reply(request, Response.SYSTEM_ERROR, remark=remark)
