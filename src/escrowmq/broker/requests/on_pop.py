"""Serves pops: messages go to the client that asks first, and are invisible to the others for a
while."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from itertools import islice
from operator import attrgetter
from typing import Final

from escrowmq.base.answer import DONE, HELD, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import (
    ATTEMPT_ID_SIZE_MAX,
    POP_MESSAGES_MAX,
    RELEASED_AT_ONCE_MAX,
)
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.reads.message_selection import EVERYTHING, TAG, SelectorCache, subscription_of
from escrowmq.broker.reads.pop_reader import Pop, PopResult, QueuePopper
from escrowmq.broker.requests.on_heartbeats import language_name
from escrowmq.codec.headers import PopHeader
from escrowmq.codec.pop_receipt import encode_message_offsets, encode_start_offsets
from escrowmq.delivery.client_clocks import ClientClocks
from escrowmq.delivery.clients import Channel, Clients
from escrowmq.delivery.held_pops import PopPolls, TopicAndGroup
from escrowmq.delivery.held_pulls import LongPoll, poll_weight
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.orderly_pops import OrderlyBatches
from escrowmq.delivery.recent_pop_clients import RecentPopClients
from escrowmq.delivery.stats import Stats
from escrowmq.errors import StorageError, UsageError
from escrowmq.filter.operands import FilterError
from escrowmq.filter.tags import ALL
from escrowmq.store.store import Arrival, Store

LATE_MS: Final = 500
"""The time after its deadline from which on a pop that arrives is refused."""

MARGIN_MS: Final = 50
"""The time before its deadline at which a waiting pop is answered, so that the answer is not
late."""

AGAIN_MAX: Final = 64
"""The most queues whose waiting pops are tried again in one wake."""

_SERIAL: Final = attrgetter("serial")
_EMPTY: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


class PopHandlers:
    """Serves POP_MESSAGE (200050) and POP_ROLLBACK (200056)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: Store,
        offsets: OffsetTable,
        clients: Clients,
        poppers: RecentPopClients,
        stats: Stats,
        polls_counts: Counter[str],
        answers: AnswerSender,
        popper: QueuePopper,
        orders: OrderlyBatches,
        on_freed: Callable[[str, str, int], None],
    ) -> None:
        self._settings = settings
        self._store = store
        self._offsets = offsets
        self._clients = clients
        self._poppers = poppers
        self._stats = stats
        self._answers = answers
        self._popper = popper
        self._orders = orders
        self._on_freed = on_freed
        self._selectors = SelectorCache()
        self._clocks = ClientClocks()
        self._again: deque[tuple[TopicAndGroup, int]] = deque()
        self._tell_arrivals: Callable[[int], None] = _ignore_arrivals
        self.polls: PopPolls[Pop] = PopPolls(
            count_max=settings.pop_polls_max,
            per_key_max=settings.pop_polls_per_key_max,
            counts=polls_counts,
        )

    def ignore_rollback(self, request: IncomingRequest[None]) -> Reply:
        """Accept without effect. Tools send it to switch from another way of storing pops, which
        this broker does not have."""
        return DONE

    def pop_messages(self, request: IncomingRequest[PopHeader]) -> Reply:
        """Answer with messages, or hold the request until there are some."""
        now_ms = request.now_ms
        self.convert_born_time(request)
        pop = self._accept_pop(request, now_ms)
        if isinstance(pop, Refusal):
            return pop
        self._record_client(request)
        if self.polls.may_have(_group_and_topic(pop.header)) and self._must_wait_for_others(
            pop, now_ms
        ):
            return HELD
        finds = self._popper.take_messages(pop, now_ms)
        if finds.count:
            return self._pop_answer(pop, finds, Response.SUCCESS)
        code = self._hold_pop(pop, finds, now_ms)
        return HELD if code is None else self._pop_answer(pop, finds, code)

    def convert_born_time(self, request: IncomingRequest[PopHeader]) -> None:
        """Convert the time at which a client made its request from the client's clock to the
        broker's."""
        header = request.header
        header.born_time = self._clocks.sent_ms(request.peer.id, header.born_time, request.now_ms)

    def set_arrival_server(self, tell: Callable[[int], None]) -> None:
        """Set the function that serves waiting requests with the messages of this input before a
        new request takes them."""
        self._tell_arrivals = tell

    def _must_wait_for_others(self, pop: Pop, now_ms: int) -> bool:
        """Serve waiting pops of the same group and topic first, because this one came later. If not
        all can be served in this turn, hold this pop and return True."""
        header = pop.header
        place = _group_and_topic(header)
        if self._store.dispatcher.arrivals:
            self._tell_arrivals(now_ms)
        if header.order and self._orders.wake_at_ms() <= now_ms:
            self._free_queues(now_ms)
        if not self._again:
            return False
        keys = [key for key in self._again if key[0] == place]
        for key in keys:
            self._again.remove(key)
            self._serve_longest_waiting(key, now_ms)
        if not any(key[0] == place for key in self._again):
            return False
        return self._hold_pop(pop, PopResult(now_ms, has_skipped=True), now_ms) is None

    def _accept_pop(self, request: IncomingRequest[PopHeader], now_ms: int) -> Pop | Refusal:
        header = request.header
        born_ms = header.born_time
        refusal = self._refusal(request, born_ms, now_ms)
        if refusal is not None:
            return refusal.with_fields(_EMPTY)
        if not header.exp:
            return Pop(request, EVERYTHING, born_ms)
        try:
            return Pop(request, self._selectors.selector_of(header.exp_type, header.exp), born_ms)
        except FilterError:
            remark = "parse the consumer's subscription failed"
            return Refusal(Response.SUBSCRIPTION_PARSE_FAILED, remark, _EMPTY)

    def _refusal(
        self, request: IncomingRequest[PopHeader], born_ms: int, now_ms: int
    ) -> Refusal | None:
        header, settings = request.header, self._settings
        front = f"the broker[{settings.advertised_host}] pop message"
        if now_ms - born_ms - header.poll_time > LATE_MS:
            self._clocks.forget_client(request.peer.id)  # its clock may have been set back
            return Refusal(Response.POLLING_TIMEOUT, f"{front} is timeout too much")
        refusal = self._popper.broker_refusal("pop")
        if refusal is not None:
            return refusal
        if header.max_msg_nums > POP_MESSAGES_MAX:
            remark = f"{front}'s num is greater than {POP_MESSAGES_MAX}"
            return Refusal(Response.INVALID_PARAMETER, remark)
        size = len(header.attempt_id or "")
        if size > ATTEMPT_ID_SIZE_MAX:
            remark = f"{front}'s attemptId has {size} characters, {ATTEMPT_ID_SIZE_MAX} are allowed"
            return Refusal(Response.INVALID_PARAMETER, remark)
        if not settings.has_timer:
            remark = f"{front} is forbidden because timerWheelEnable is false"
            return Refusal(Response.SYSTEM_ERROR, remark)
        return self._popper.group_refusal(request, now_ms)

    def _record_client(self, request: IncomingRequest[PopHeader]) -> None:
        """Record the client that pops, so that operators see it even without heartbeats."""
        peer, header, now_ms = request.peer, request.header, request.now_ms
        group, expression = header.consumer_group, header.exp or ALL
        if self._poppers.was_just_noted(group, peer.id, header.topic, expression, now_ms):
            return
        channel = Channel(
            peer=peer.id,
            client_id=self._clients.client_id(peer.id) or peer.address,
            language=language_name(request.command.language),
            version=request.command.version,
            address=peer.address,
            seen_ms=now_ms,
        )
        kind = header.exp_type if header.exp else TAG
        own = subscription_of(header.topic, kind, expression, now_ms)
        retries = self._popper.retry_topics(header)
        self._poppers.note_pop(
            group, channel, [own, *(subscription_of(name, TAG, ALL, now_ms) for name in retries)]
        )

    def _pop_answer(self, pop: Pop, finds: PopResult, code: int) -> Answer:
        header = pop.header
        ext = {
            "popTime": str(finds.pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(finds.revive_queue),
            "restNum": str(finds.rest),
            "startOffsetInfo": encode_start_offsets(finds.starts),
            "msgOffsetInfo": encode_message_offsets(finds.offsets),
        }
        if header.order:
            ext["orderCountInfo"] = ";".join(finds.counts)
        remark = "FOUND" if code == Response.SUCCESS else "NO_MESSAGE_IN_QUEUE"
        if finds.count:
            size = sum(map(len, finds.chunks))
            self._stats.count_gets(header.consumer_group, header.topic, finds.count, size)
            if finds.rest:
                self._retry_queue_later(_group_and_topic(header), header.queue_id)
        return Answer(code, ext=ext, remark=remark, chunks=finds.chunks)

    # -- waiting ---------------------------------------------------------------------------------

    def _hold_pop(self, pop: Pop, finds: PopResult, now_ms: int) -> int | None:
        """Hold a pop until messages arrive, and return None. If it may not wait, return the code to
        answer with."""
        header = pop.header
        if header.poll_time <= 0:
            return Response.POLLING_TIMEOUT
        until_ms = pop.born_ms + header.poll_time - MARGIN_MS
        place = _group_and_topic(header)
        if until_ms <= now_ms:
            polls = self.polls
            is_full = polls.is_full(place, header.queue_id)
            return Response.POLLING_FULL if is_full else Response.POLLING_TIMEOUT
        topics = [header.topic, *self._popper.retry_topics(header)]
        if not self.polls.hold(
            place,
            header.queue_id,
            pop,
            topics=topics,
            peer=pop.request.peer.id,
            until_ms=until_ms,
            account=pop.request.peer.counted_for,
            weight=poll_weight(pop.request.command),
        ):
            return Response.POLLING_FULL
        if finds.has_skipped:
            self._retry_queue_later(place, header.queue_id)
        return None

    def _retry_queue_later(self, place: TopicAndGroup, queue_id: int) -> None:
        """Try the waiting pops of a queue again at the next wake, because there may be messages for
        them."""
        if self.polls.count_at(place, queue_id) and (place, queue_id) not in self._again:
            self._again.append((place, queue_id))

    def _judge_again(self, request: IncomingRequest[PopHeader], now_ms: int) -> Pop | None:
        """Judge a waiting pop again, as RocketMQ (PopLongPollingService) does. Answer it, and
        return None, if its topic was deleted or its group may no longer read."""
        try:
            pop = self._accept_pop(request, now_ms)
        except UsageError as error:
            pop = Refusal(Response.SYSTEM_ERROR, str(error), _EMPTY)
        if isinstance(pop, Pop):
            return pop
        self._answers.send(request, pop)
        return None

    def _answer_if_ready(self, held: LongPoll[Pop], now_ms: int) -> bool:
        """Answer a waiting pop if there are messages for it, or if it is no longer allowed. Return
        whether it was answered."""
        pop = self._judge_again(held.question.request, now_ms)
        if pop is None:
            self.polls.remove(held)
            return True
        finds = self._popper.take_messages(pop, now_ms)
        if finds.count:
            self.polls.remove(held)
            self._answers.send(pop.request, self._pop_answer(pop, finds, Response.SUCCESS))
            return True
        if finds.has_skipped:
            self._retry_queue_later(_group_and_topic(pop.header), pop.header.queue_id)
        return False

    def serve_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Serve waiting pops with an arrived message: one of each group, the one that has waited
        longest."""
        for place in self.polls.woken_by(arrival.topic):
            queue_ids = self.polls.polled_queues(place)
            if arrival.topic == place[0]:
                queue_ids = [each for each in queue_ids if each in (-1, arrival.queue_id)]
            self._offer_arrival(place, queue_ids, arrival, now_ms)

    def _offer_arrival(
        self, place: TopicAndGroup, queue_ids: list[int], arrival: Arrival, now_ms: int
    ) -> None:
        """Serve the pops that wait for these queues, one after another, until the arrived message
        is taken. Each may also take others that arrived with it."""
        while queue_ids:
            each = [self._find_waiting_pop(place, queue_id, arrival) for queue_id in queue_ids]
            wanting = [held for held in each if held is not None]
            if not wanting:
                return
            held = min(wanting, key=_SERIAL) if len(wanting) > 1 else wanting[0]
            is_served = self._answer_if_ready(held, now_ms)
            offset = self._offsets.get(place[1], arrival.topic, arrival.queue_id)
            if offset > arrival.queue_offset or (is_served and held.question.header.order):
                return
            if not is_served:
                queue_ids = [queue_id for queue_id in queue_ids if queue_id != held.key[1]]

    def _find_waiting_pop(
        self, place: TopicAndGroup, queue_id: int, arrival: Arrival
    ) -> LongPoll[Pop] | None:
        store = self._store
        for held in self.polls.polls_at(place, queue_id):
            selector = held.question.selector
            if selector is EVERYTHING or selector.wants(
                arrival.tags_code,
                lambda: store.read_record(arrival.log_offset, arrival.record_size),
            ):
                return held
        return None

    def serve_freed_queues(self, group: str, topic: str, now_ms: int) -> None:
        """Serve the waiting pops of an orderly group, the oldest of each queue, because the queue
        may be popped again."""
        place = (topic, group)
        firsts = [
            self.polls.polls_at(place, queue_id)[0] for queue_id in self.polls.polled_queues(place)
        ]
        for held in sorted(firsts, key=_SERIAL):
            self._answer_if_ready(held, now_ms)

    def _free_queues(self, now_ms: int) -> None:
        """Free the queues of orderly groups whose messages were not acknowledged in time."""
        for group, topic, _ in self._orders.take_freed_queues(now_ms):
            self._on_freed(group, topic, now_ms)

    def _serve_longest_waiting(self, key: tuple[TopicAndGroup, int], now_ms: int) -> None:
        for held in self.polls.polls_at(*key)[:1]:
            self._answer_if_ready(held, now_ms)

    def disconnected(self, peer: int) -> None:
        """Drop the waiting pops of a disconnected client."""
        self.polls.remove_polls_of(peer)
        self._clocks.forget_client(peer)

    def wake(self, now_ms: int) -> None:
        """Serve the pops that can be served now, and answer those whose poll time is over."""
        self._free_queues(now_ms)
        for _ in range(min(len(self._again), AGAIN_MAX)):
            self._serve_longest_waiting(self._again.popleft(), now_ms)
        for held in islice(self.polls.take_expired(now_ms), RELEASED_AT_ONCE_MAX):
            pop = self._judge_again(held.question.request, now_ms)
            if pop is None:
                continue
            try:
                finds = self._popper.take_messages(pop, now_ms)
            except (StorageError, OSError) as error:
                self._answers.send(pop.request, Refusal(Response.SYSTEM_ERROR, str(error), _EMPTY))
                continue
            code = Response.SUCCESS if finds.count else Response.POLLING_TIMEOUT
            self._answers.send(pop.request, self._pop_answer(pop, finds, code))

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do next."""
        if self._again:
            return 0
        return min(self.polls.wake_at_ms(), self._orders.wake_at_ms())


def _ignore_arrivals(now_ms: int) -> None:
    """Do nothing: the default, if no function serves arrivals during a request."""


def _group_and_topic(header: PopHeader) -> TopicAndGroup:
    return header.topic, header.consumer_group
