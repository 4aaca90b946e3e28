"""Questions about what could be popped: is there anything, what is it, who waits for it."""

from __future__ import annotations

from itertools import islice
from typing import Final

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import RELEASED_AT_ONCE_MAX
from escrowmq.broker.on_pop import MARGIN_MS, PopHandlers
from escrowmq.broker.on_pull import Refused
from escrowmq.broker.popping import Ask, Popper, judge_broker, judge_place
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import PopHeader, read_header
from escrowmq.delivery.hold import Held, weight_of
from escrowmq.delivery.poll import Polls
from escrowmq.errors import UsageError
from escrowmq.store.store import Arrival

_EMPTY: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


class PeekHandlers:
    """PEEK_MESSAGE (200052), NOTIFICATION (200054), POLLING_INFO (200055)."""

    def __init__(self, broker: Broker, popper: Popper, pops: PopHandlers) -> None:
        self._broker = broker
        self._popper = popper
        self._pops = pops
        settings = broker.settings
        self.polls: Polls[Ask] = Polls(
            count_max=settings.pop_polls_max,
            per_key_max=settings.pop_polls_per_key_max,
            counts=broker.polls_counts,
        )

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {
            Request.PEEK_MESSAGE: self.peek,
            Request.NOTIFICATION: self.notify,
            Request.POLLING_INFO: self.count_polls,
        }

    def _judge(self, peer: Peer, header: PopHeader, now_ms: int) -> None:
        judge_broker(self._broker, "peeking")
        judge_place(self._broker, peer, header, now_ms)

    def peek(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """What a pop would be given."""
        header = read_header(PopHeader, request.ext)
        try:
            self._judge(peer, header, now_ms)
        except Refused as refused:
            return encode_reply(request, refused.code, remark=str(refused), ext=_EMPTY)
        finds = self._popper.peek(header, now_ms)
        code = Response.SUCCESS if finds.count else Response.PULL_NOT_FOUND
        remark = "FOUND" if finds.count else "NO_MESSAGE_IN_QUEUE"
        ext = {**_EMPTY, "restNum": str(finds.rest)}
        size = sum(map(len, finds.chunks))
        front = encode_reply(request, code, remark=remark, ext=ext, later_size=size)
        self._broker.send(peer.id, front, *finds.chunks)
        if finds.count:
            self._broker.stats.get(header.consumer_group, header.topic, finds.count, size)
        return None

    def count_polls(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """How many pops wait for a queue."""
        header = read_header(PopHeader, request.ext)
        try:
            self._judge(peer, header, now_ms)
        except Refused as refused:
            ext = {"pollingNum": "0"}
            return encode_reply(request, refused.code, remark=str(refused), ext=ext)
        count = self._pops.polls.count((header.topic, header.consumer_group), header.queue_id)
        return encode_reply(request, Response.SUCCESS, ext={"pollingNum": str(count)})

    # -- telling that there is something ---------------------------------------------------------

    def notify(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Say whether there is anything to pop, at the latest when the time is over."""
        header = read_header(PopHeader, request.ext)
        try:
            self._judge(peer, header, now_ms)
        except Refused as refused:
            ext = _told(has_message=False)
            return encode_reply(request, refused.code, remark=str(refused), ext=ext)
        ask = Ask(peer, request, header, born_ms=header.born_time or now_ms)
        if self._popper.has_message(header, now_ms):
            return encode_reply(request, Response.SUCCESS, ext=_told(has_message=True))
        until_ms = ask.born_ms + header.poll_time - MARGIN_MS
        if header.poll_time <= 0 or until_ms <= now_ms:
            return encode_reply(request, Response.SUCCESS, ext=_told(has_message=False))
        topics = [header.topic, *self._popper.retry_topics(header)]
        place = (header.topic, header.consumer_group)
        if self.polls.hold(
            place,
            header.queue_id,
            ask,
            topics=topics,
            peer=peer.id,
            until_ms=until_ms,
            account=peer.counted_for,
            weight=weight_of(request),
        ):
            return None
        ext = _told(has_message=False, is_full=True)
        return encode_reply(request, Response.SUCCESS, ext=ext)

    def arrived(self, arrival: Arrival, now_ms: int) -> None:
        """A message is there: tell one of each group that waits for it, unless a pop took it."""
        for place in self.polls.places(arrival.topic):
            for queue_id in self.polls.queues(place):
                if arrival.topic == place[0] and queue_id not in (-1, arrival.queue_id):
                    continue
                for held in self.polls.waiting(place, queue_id)[:1]:
                    self._try(held, now_ms)

    def freed(self, group: str, topic: str, now_ms: int) -> None:
        """A queue of an orderly group may be read again."""
        place = (topic, group)
        for queue_id in self.polls.queues(place):
            for held in self.polls.waiting(place, queue_id)[:1]:
                self._try(held, now_ms)

    def _is_still_allowed(self, ask: Ask, now_ms: int) -> bool:
        """Judge a question that waited anew; tell a client that may not ask it any more."""
        try:
            self._judge(ask.peer, ask.header, now_ms)
        except Refused as refused:
            code, remark = refused.code, str(refused)
        except UsageError as error:
            code, remark = Response.SYSTEM_ERROR, str(error)
        else:
            return True
        ext = _told(has_message=False)
        reply = encode_reply(ask.request, code, remark=remark, ext=ext)
        self._broker.send(ask.peer.id, reply)
        return False

    def _try(self, held: Held[Ask], now_ms: int) -> None:
        """Answer a question that waits if there is a message, or if it may not wait any more."""
        if not self._is_still_allowed(held.pull, now_ms):
            self.polls.release(held)
        elif self._popper.has_message(held.pull.header, now_ms):
            self.polls.release(held)
            self._tell(held.pull, has_message=True)

    def _tell(self, ask: Ask, *, has_message: bool) -> None:
        ext = _told(has_message=has_message)
        self._broker.send(ask.peer.id, encode_reply(ask.request, Response.SUCCESS, ext=ext))

    def lost(self, peer: int) -> None:
        """A client is gone."""
        self.polls.lost(peer)

    def wake(self, now_ms: int) -> None:
        """Tell those that have waited for long enough."""
        for held in islice(self.polls.expired(now_ms), RELEASED_AT_ONCE_MAX):
            if not self._is_still_allowed(held.pull, now_ms):
                continue
            has_message = self._popper.has_message(held.pull.header, now_ms)
            self._tell(held.pull, has_message=has_message)

    def wake_at_ms(self) -> int:
        """When `wake` has something to do next."""
        return self.polls.wake_at_ms()


def _told(*, has_message: bool, is_full: bool = False) -> dict[str, str]:
    return {
        "hasMsg": "true" if has_message else "false",
        "pollingFull": "true" if is_full else "false",
    }
