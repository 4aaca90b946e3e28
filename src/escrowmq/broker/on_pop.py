"""Pops: messages for whoever asks first, each invisible to the others for a while."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import POP_MESSAGES_MAX, RELEASED_AT_ONCE_MAX
from escrowmq.broker.on_clients import language_name
from escrowmq.broker.on_pull import Refused
from escrowmq.broker.popping import Ask, Finds, Popper, judge_broker, judge_place
from escrowmq.broker.selecting import EVERYTHING, TAG, Selector, Selectors, subscription_of
from escrowmq.broker.state import Broker, Handler, Peer
from escrowmq.codec.command import encode_reply
from escrowmq.codec.headers import PopHeader, read_header
from escrowmq.codec.receipt import encode_offsets, encode_starts
from escrowmq.delivery.clients import Channel
from escrowmq.delivery.hold import Held, weight_of
from escrowmq.delivery.order import OrderTable
from escrowmq.delivery.poll import Place, Polls
from escrowmq.errors import UsageError
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import ALL
from escrowmq.store.store import Arrival

LATE_MS: Final = 500
"""A pop that comes so long after its time is over is not looked at."""

MARGIN_MS: Final = 50
"""A poll ends so long before its time is over, lest the answer come too late."""

AGAIN_MAX: Final = 64
"""Polls that are looked at again in one wake."""

_EMPTY: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


class PopHandlers:
    """POP_MESSAGE (200050), POP_ROLLBACK (200056)."""

    def __init__(
        self,
        broker: Broker,
        popper: Popper,
        orders: OrderTable,
        on_freed: Callable[[str, str, int], None],
    ) -> None:
        self._broker = broker
        self._popper = popper
        self._orders = orders
        self._on_freed = on_freed
        self._selectors = Selectors()
        self._again: deque[tuple[Place, int]] = deque()
        settings = broker.settings
        self.polls: Polls[Ask] = Polls(
            count_max=settings.pop_polls_max,
            per_key_max=settings.pop_polls_per_key_max,
            counts=broker.polls_counts,
        )

    def routes(self) -> dict[int, Handler]:
        """Request codes and who serves them."""
        return {Request.POP_MESSAGE: self.pop, Request.POP_ROLLBACK: self.roll_back}

    def roll_back(self, peer: Peer, request: Command, now_ms: int) -> bytes:
        """Tools send it to leave another way of keeping pops, which this broker does not have."""
        return encode_reply(request, Response.SUCCESS)

    def pop(self, peer: Peer, request: Command, now_ms: int) -> bytes | None:
        """Hand out messages, or hold the request until there are some."""
        header = read_header(PopHeader, request.ext)
        try:
            selector = self._judge(peer, header, now_ms)
        except Refused as refused:
            return encode_reply(request, refused.code, remark=str(refused), ext=_EMPTY)
        self._note(peer, request, header, now_ms)
        ask = Ask(peer, request, header, selector, header.born_time or now_ms)
        finds = self._popper.find(ask, now_ms)
        if finds.count:
            self._reply(ask, finds, Response.SUCCESS)
            return None
        code = self._hold(ask, finds, now_ms)
        if code is not None:
            self._reply(ask, finds, code)
        return None

    def _judge(self, peer: Peer, header: PopHeader, now_ms: int) -> Selector:
        settings = self._broker.settings
        front = f"the broker[{settings.advertised_host}] pop message"
        born_ms = header.born_time or now_ms
        if now_ms - born_ms - header.poll_time > LATE_MS:
            raise Refused(Response.POLLING_TIMEOUT, f"{front} is timeout too much")
        judge_broker(self._broker, "pop")
        if header.max_msg_nums > POP_MESSAGES_MAX:
            raise Refused(
                Response.INVALID_PARAMETER, f"{front}'s num is greater than {POP_MESSAGES_MAX}"
            )
        if not settings.has_timer:
            raise Refused(
                Response.SYSTEM_ERROR, f"{front} is forbidden because timerWheelEnable is false"
            )
        judge_place(self._broker, peer, header, now_ms)
        if not header.exp:
            return EVERYTHING
        try:
            return self._selectors.of(header.exp_type, header.exp)
        except FilterError as error:
            raise Refused(
                Response.SUBSCRIPTION_PARSE_FAILED, "parse the consumer's subscription failed"
            ) from error

    def _note(self, peer: Peer, request: Command, header: PopHeader, now_ms: int) -> None:
        """Let operators see who pops, heartbeats or not."""
        broker = self._broker
        group, expression = header.consumer_group, header.exp or ALL
        if broker.poppers.is_fresh(group, peer.id, header.topic, expression, now_ms):
            return
        channel = Channel(
            peer=peer.id,
            client_id=broker.clients.client_id(peer.id) or peer.address,
            language=language_name(request.language),
            version=request.version,
            address=peer.address,
            seen_ms=now_ms,
        )
        own = subscription_of(header.topic, header.exp_type, expression, now_ms)
        retries = self._popper.retry_topics(header)
        broker.poppers.note(
            group, channel, [own, *(subscription_of(name, TAG, ALL, now_ms) for name in retries)]
        )

    def _reply(self, ask: Ask, finds: Finds, code: int) -> None:
        header = ask.header
        ext = {
            "popTime": str(finds.pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(finds.revive_queue),
            "restNum": str(finds.rest),
            "startOffsetInfo": encode_starts(finds.starts),
            "msgOffsetInfo": encode_offsets(finds.offsets),
        }
        if header.order:
            ext["orderCountInfo"] = ";".join(finds.counts)
        remark = "FOUND" if code == Response.SUCCESS else "NO_MESSAGE_IN_QUEUE"
        size = sum(map(len, finds.chunks))
        front = encode_reply(ask.request, code, remark=remark, ext=ext, later_size=size)
        self._broker.send(ask.peer.id, front, *finds.chunks)
        if finds.count:
            self._broker.stats.get(header.consumer_group, header.topic, finds.count, size)
            if finds.rest:
                self._look_again(_place(header), header.queue_id)

    # -- waiting ---------------------------------------------------------------------------------

    def _hold(self, ask: Ask, finds: Finds, now_ms: int) -> int | None:
        """Let a pop wait; else the code that it is answered with."""
        header = ask.header
        if header.poll_time <= 0:
            return Response.POLLING_TIMEOUT
        until_ms = ask.born_ms + header.poll_time - MARGIN_MS
        place = _place(header)
        if until_ms <= now_ms:
            polls = self.polls
            is_full = polls.is_full(place, header.queue_id)
            return Response.POLLING_FULL if is_full else Response.POLLING_TIMEOUT
        topics = [header.topic, *self._popper.retry_topics(header)]
        if not self.polls.hold(
            place,
            header.queue_id,
            ask,
            topics=topics,
            peer=ask.peer.id,
            until_ms=until_ms,
            account=ask.peer.counted_for,
            weight=weight_of(ask.request),
        ):
            return Response.POLLING_FULL
        if finds.has_skipped:
            self._look_again(place, header.queue_id)
        return None

    def _look_again(self, place: Place, queue_id: int) -> None:
        """There is more for those that wait: at the next wake, at once."""
        if self.polls.count(place, queue_id) and (place, queue_id) not in self._again:
            self._again.append((place, queue_id))

    def _is_still_allowed(self, ask: Ask, now_ms: int) -> bool:
        """Judge a pop that waited anew, as the peer (PopLongPollingService) does; tell a client
        whose topic is gone, or whose group may not read any more."""
        try:
            ask.selector = self._judge(ask.peer, ask.header, now_ms)
        except Refused as refused:
            code, remark = refused.code, str(refused)
        except UsageError as error:
            code, remark = Response.SYSTEM_ERROR, str(error)
        else:
            return True
        reply = encode_reply(ask.request, code, remark=remark, ext=_EMPTY)
        self._broker.send(ask.peer.id, reply)
        return False

    def _try(self, held: Held[Ask], now_ms: int) -> bool:
        """Answer a waiting pop if there is something for it, or if it may not wait any more."""
        ask = held.pull
        if not self._is_still_allowed(ask, now_ms):
            self.polls.release(held)
            return True
        finds = self._popper.find(ask, now_ms)
        if finds.count:
            self.polls.release(held)
            self._reply(ask, finds, Response.SUCCESS)
            return True
        if finds.has_skipped:
            self._look_again(_place(ask.header), ask.header.queue_id)
        return False

    def arrived(self, arrival: Arrival, now_ms: int) -> None:
        """A message is there: give it to one of each group that waits for it."""
        for place in self.polls.places(arrival.topic):
            group = place[1]
            for queue_id in self.polls.queues(place):
                if arrival.topic == place[0] and queue_id not in (-1, arrival.queue_id):
                    continue
                held = self._wanting(place, queue_id, arrival)
                if held is not None:
                    self._try(held, now_ms)
                offset = self._broker.offsets.get(group, arrival.topic, arrival.queue_id)
                if offset > arrival.queue_offset:
                    break  # it is gone

    def _wanting(self, place: Place, queue_id: int, arrival: Arrival) -> Held[Ask] | None:
        store = self._broker.store
        for held in self.polls.waiting(place, queue_id):
            selector = held.pull.selector
            if selector is EVERYTHING or selector.wants(
                arrival.tags_code,
                lambda: store.read_record(arrival.log_offset, arrival.record_size),
            ):
                return held
        return None

    def freed(self, group: str, topic: str, now_ms: int) -> None:
        """A queue of an orderly group may be read again."""
        place = (topic, group)
        for queue_id in self.polls.queues(place):
            for held in self.polls.waiting(place, queue_id)[:1]:
                self._try(held, now_ms)

    def lost(self, peer: int) -> None:
        """A client is gone."""
        self.polls.lost(peer)

    def wake(self, now_ms: int) -> None:
        """Whoever can be served now, or has waited for long enough."""
        for group, topic, _ in self._orders.freed(now_ms):
            self._on_freed(group, topic, now_ms)
        for _ in range(min(len(self._again), AGAIN_MAX)):
            place, queue_id = self._again.popleft()
            for held in self.polls.waiting(place, queue_id)[:1]:
                self._try(held, now_ms)
        for held in islice(self.polls.expired(now_ms), RELEASED_AT_ONCE_MAX):
            if not self._is_still_allowed(held.pull, now_ms):
                continue
            finds = self._popper.find(held.pull, now_ms)
            code = Response.SUCCESS if finds.count else Response.POLLING_TIMEOUT
            self._reply(held.pull, finds, code)

    def wake_at_ms(self) -> int:
        """When `wake` has something to do next."""
        if self._again:
            return 0
        return min(self.polls.wake_at_ms(), self._orders.wake_at_ms())


def _place(header: PopHeader) -> Place:
    return header.topic, header.consumer_group
