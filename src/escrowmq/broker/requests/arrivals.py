"""Messages that became visible: who waits for them is woken at the end of the input, or before
somebody else takes what arrived in it."""

from __future__ import annotations

from escrowmq.base.background_rounds import Rounds
from escrowmq.base.message import Topic
from escrowmq.broker.part import Part
from escrowmq.broker.requests.on_pull import PullHandlers
from escrowmq.broker.requests.pop_part import Pops
from escrowmq.delivery.delay_queues import DelayQueues
from escrowmq.delivery.made_by_use import Present
from escrowmq.delivery.timer import TimerQueue
from escrowmq.store.store import Store


class Arrivals(Part):
    """Tells those who deliver later, who pull and who pop."""

    name = "arrivals"

    def __init__(
        self,
        *,
        store: Store,
        delays: DelayQueues,
        timer: TimerQueue,
        rounds: Rounds,
        present: Present,
        pulls: PullHandlers,
        pops: Pops,
    ) -> None:
        self._present = present
        self._delays = delays
        self._timer = timer
        self._store = store
        self._rounds = rounds
        self._pulls = pulls
        self._pops = pops
        self._pulled = pulls.holds.by_queue
        self._popped, self._peeked = (polls.places_by_topic for polls in pops.polls)
        self._revive_topic = pops.ledger.topic
        pops.tell_arrivals_by(self._settle_early)

    def is_awaited(self, topic: str, queue_id: int) -> bool:
        """Whether somebody who pulls or pops waits for messages of a queue. Asked for each queue of
        each input: without a call of anybody else it takes a fifth."""
        return (
            (topic, queue_id) in self._pulled
            or topic in self._popped
            or topic in self._peeked
            or topic == self._revive_topic
        )

    def _settle_early(self, now_ms: int) -> None:
        """In the middle of an input; what those who wait cause is not on the account of whoever is
        served just now."""
        account, self._present.account = self._present.account, ""
        self.settle(now_ms)
        self._present.account = account

    def settle(self, now_ms: int) -> None:
        """Wake who waits for what arrived. Nobody waits for most queues, and nobody begins to
        while this goes on: asked once for all messages of a batch."""
        unawaited: tuple[str, int] | None = None
        for arrival in self._store.take_arrivals():
            topic = arrival.topic
            if unawaited is not None and unawaited == (topic, arrival.queue_id):
                continue
            try:
                if topic == Topic.SCHEDULE:
                    self._delays.arrived(arrival, now_ms)
                elif topic == Topic.TIMER:
                    self._timer.arrived(arrival)
                elif self.is_awaited(topic, arrival.queue_id):
                    self._pulls.arrived(arrival, now_ms)
                    self._pops.arrived(arrival, now_ms)
                else:
                    unawaited = (topic, arrival.queue_id)
            except Exception as error:  # noqa: BLE001 - one message; those behind it are told of
                self._rounds.failed("the arrival of a message", error, now_ms)
