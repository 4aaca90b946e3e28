"""Serves waiting consumers when messages become visible: at the end of the input, or before another
request of the input takes the messages."""

from __future__ import annotations

from escrowmq.base.background_rounds import BackgroundRounds
from escrowmq.base.message import Topic
from escrowmq.broker.part import Part
from escrowmq.broker.requests.on_pull import PullHandlers
from escrowmq.broker.requests.pop_part import PopPart
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.timer import TimerQueue
from escrowmq.store.store import Store


class ArrivalServer(Part):
    """Passes arrived messages on to delayed delivery, pulls and pops."""

    name = "arrivals"

    def __init__(
        self,
        *,
        store: Store,
        delays: DelayQueues,
        timer: TimerQueue,
        rounds: BackgroundRounds,
        present: RequestAccount,
        pulls: PullHandlers,
        pops: PopPart,
    ) -> None:
        self._present = present
        self._delays = delays
        self._timer = timer
        self._store = store
        self._rounds = rounds
        self._pulls = pulls
        self._pops = pops
        self._pulled = pulls.holds.by_queue
        self._popped, self._peeked = (polls.waiting_by_topic for polls in pops.poll_tables)
        self._own_topics = {pops.ledger.topic, Topic.SCHEDULE, Topic.TIMER}
        self.work = (store.dispatcher.arrivals,)
        store.dispatcher.report_only_awaited(self.is_awaited)
        pops.set_arrival_server(self._serve_early)

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Whether a pull, a pop or delayed delivery waits for messages of a queue. It is called for
        each queue of each input. It calls no other function, because that makes it five times as
        fast."""
        return (
            (topic, queue_id) in self._pulled
            or topic in self._popped
            or topic in self._peeked
            or topic in self._own_topics
        )

    def _serve_early(self, now_ms: int) -> None:
        """Serve waiting requests in the middle of an input. This does not count for the account
        whose request is being served."""
        account, self._present.account = self._present.account, ""
        self.finish_input(now_ms)
        self._present.account = account

    def finish_input(self, now_ms: int) -> None:
        """Serve the requests that wait for the messages of this input."""
        unawaited: tuple[str, int] | None = None
        for arrival in self._store.take_arrivals():
            topic = arrival.topic
            if unawaited is not None and unawaited == (topic, arrival.queue_id):
                continue
            try:
                if topic == Topic.SCHEDULE:
                    self._delays.note_arrival(arrival, now_ms)
                elif topic == Topic.TIMER:
                    self._timer.note_arrival(arrival)
                elif self.is_awaited(topic, arrival.queue_id):
                    self._pulls.serve_arrival(arrival, now_ms)
                    self._pops.serve_arrival(arrival, now_ms)
                else:
                    unawaited = (topic, arrival.queue_id)
            except Exception as error:  # noqa: BLE001 - one message; the next ones are still served
                self._rounds.count_failure("the arrival of a message", error, now_ms)
