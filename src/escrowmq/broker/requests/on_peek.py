"""Serves queries about what could be popped: whether there are messages, which ones, and how many
pops wait."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Final

from escrowmq.base.answer import HELD, Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import RELEASED_AT_ONCE_MAX
from escrowmq.broker.answers.answer_delivery import AnswerSender
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.reads.pop_reader import Pop, QueuePopper
from escrowmq.broker.requests.on_pop import MARGIN_MS, PopHandlers
from escrowmq.codec.headers import PopHeader
from escrowmq.delivery.held_pops import PopPolls
from escrowmq.delivery.held_pulls import LongPoll, poll_weight
from escrowmq.delivery.stats import Stats
from escrowmq.errors import StorageError, UsageError
from escrowmq.store.store import Arrival

_EMPTY: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


class PeekHandlers:
    """Serves PEEK_MESSAGE (200052), NOTIFICATION (200054) and POLLING_INFO (200055)."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        stats: Stats,
        polls_counts: Counter[str],
        answers: AnswerSender,
        popper: QueuePopper,
        pops: PopHandlers,
    ) -> None:
        self._stats = stats
        self._answers = answers
        self._popper = popper
        self._pops = pops
        self.polls: PopPolls[Pop] = PopPolls(
            count_max=settings.pop_polls_max,
            per_key_max=settings.pop_polls_per_key_max,
            counts=polls_counts,
        )

    def _refusal(self, request: IncomingRequest[PopHeader], now_ms: int) -> Refusal | None:
        popper = self._popper
        return popper.broker_refusal("peeking") or popper.group_refusal(request, now_ms)

    def peek_messages(self, request: IncomingRequest[PopHeader]) -> Reply:
        """Answer with the messages that a pop would return."""
        header = request.header
        refusal = self._refusal(request, request.now_ms)
        if refusal is not None:
            return refusal.with_fields(_EMPTY)
        finds = self._popper.peek(header, request.now_ms)
        code = Response.SUCCESS if finds.count else Response.PULL_NOT_FOUND
        remark = "FOUND" if finds.count else "NO_MESSAGE_IN_QUEUE"
        ext = {**_EMPTY, "restNum": str(finds.rest)}
        if finds.count:
            size = sum(map(len, finds.chunks))
            self._stats.count_gets(header.consumer_group, header.topic, finds.count, size)
        return Answer(code, ext=ext, remark=remark, chunks=finds.chunks)

    def count_waiting_pops(self, request: IncomingRequest[PopHeader]) -> Reply:
        """Answer with the number of pops that wait for a queue."""
        header = request.header
        refusal = self._refusal(request, request.now_ms)
        if refusal is not None:
            return refusal.with_fields({"pollingNum": "0"})
        count = self._pops.polls.count_at((header.topic, header.consumer_group), header.queue_id)
        return Answer(ext={"pollingNum": str(count)})

    # -- telling that there is something ---------------------------------------------------------

    def notify_of_message(self, request: IncomingRequest[PopHeader]) -> Reply:
        """Answer as soon as there is a message to pop, or when the poll's time is over."""
        header, now_ms = request.header, request.now_ms
        refusal = self._refusal(request, now_ms)
        if refusal is not None:
            return refusal.with_fields(_peek_fields(has_message=False))
        if self._popper.has_message(header, now_ms):
            return Answer(ext=_peek_fields(has_message=True))
        self._pops.convert_born_time(request)
        born_ms = header.born_time
        until_ms = born_ms + header.poll_time - MARGIN_MS
        if header.poll_time <= 0 or until_ms <= now_ms:
            return Answer(ext=_peek_fields(has_message=False))
        if self.polls.hold(
            (header.topic, header.consumer_group),
            header.queue_id,
            Pop(request, born_ms=born_ms),
            topics=[header.topic, *self._popper.retry_topics(header)],
            peer=request.peer.id,
            until_ms=until_ms,
            account=request.peer.counted_for,
            weight=poll_weight(request.command),
        ):
            return HELD
        return Answer(ext=_peek_fields(has_message=False, is_full=True))

    def serve_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Notify one waiting client of each group that an arrived message can be popped, unless a
        pop took it."""
        for place in self.polls.woken_by(arrival.topic):
            for queue_id in self.polls.polled_queues(place):
                if arrival.topic == place[0] and queue_id not in (-1, arrival.queue_id):
                    continue
                for held in self.polls.polls_at(place, queue_id)[:1]:
                    self._answer_if_ready(held, now_ms)

    def serve_freed_queues(self, group: str, topic: str, now_ms: int) -> None:
        """Notify waiting clients of an orderly group, one for each queue, that the queue may be
        popped again."""
        place = (topic, group)
        for queue_id in self.polls.polled_queues(place):
            for held in self.polls.polls_at(place, queue_id)[:1]:
                self._answer_if_ready(held, now_ms)

    def _is_still_allowed(self, request: IncomingRequest[PopHeader], now_ms: int) -> bool:
        """Whether a waiting request is still allowed. If not, answer it with the refusal."""
        try:
            refusal = self._refusal(request, now_ms)
        except UsageError as error:
            refusal = Refusal(Response.SYSTEM_ERROR, str(error))
        if refusal is None:
            return True
        self._answers.send(request, refusal.with_fields(_peek_fields(has_message=False)))
        return False

    def _answer_if_ready(self, held: LongPoll[Pop], now_ms: int) -> None:
        """Answer a waiting request if there is a message, or if the request is no longer
        allowed."""
        request = held.question.request
        if not self._is_still_allowed(request, now_ms):
            self.polls.remove(held)
        elif self._popper.has_message(request.header, now_ms):
            self.polls.remove(held)
            self._answers.send(request, Answer(ext=_peek_fields(has_message=True)))

    def disconnected(self, peer: int) -> None:
        """Drop the waiting requests of a disconnected client."""
        self.polls.remove_polls_of(peer)

    def wake(self, now_ms: int) -> None:
        """Answer the requests whose poll time is over."""
        for held in islice(self.polls.take_expired(now_ms), RELEASED_AT_ONCE_MAX):
            request = held.question.request
            if self._is_still_allowed(request, now_ms):
                try:
                    has_message = self._popper.has_message(request.header, now_ms)
                except (StorageError, OSError):  # its time is over, so it is answered nevertheless
                    has_message = False
                self._answers.send(request, Answer(ext=_peek_fields(has_message=has_message)))

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do next."""
        return self.polls.wake_at_ms()


def _peek_fields(*, has_message: bool, is_full: bool = False) -> dict[str, str]:
    return {
        "hasMsg": "true" if has_message else "false",
        "pollingFull": "true" if is_full else "false",
    }
