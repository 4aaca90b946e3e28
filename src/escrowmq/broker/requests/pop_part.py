"""The part for pop consumption: it passes the core's events to the handlers and the ledger."""

from __future__ import annotations

import logging
from collections.abc import Callable

from escrowmq.base.log_throttle import RepeatedErrors
from escrowmq.broker.part import NOTHING, File, Part, StartContext
from escrowmq.broker.peer import Peer
from escrowmq.broker.reads.pop_reader import Pop
from escrowmq.broker.requests.on_ack import AckHandlers, OnFreed
from escrowmq.broker.requests.on_assignment import AssignmentHandlers
from escrowmq.broker.requests.on_peek import PeekHandlers
from escrowmq.broker.requests.on_pop import PopHandlers
from escrowmq.broker.upkeep.offset_saver import OffsetSaver
from escrowmq.delivery import assignment, orderly_pops
from escrowmq.delivery.held_pops import PopPolls
from escrowmq.delivery.orderly_pops import OrderlyBatches
from escrowmq.delivery.pop_ledger import PopLedger
from escrowmq.errors import StorageError
from escrowmq.store.store import Arrival

_log = logging.getLogger(__name__)


class FreedListeners:
    """Calls all registered functions when queues of an orderly group are free to be popped
    again."""

    def __init__(self) -> None:
        self._told: list[OnFreed] = []
        self._unread = RepeatedErrors()

    def add(self, listener: OnFreed) -> None:
        """Register a function that is called when a group may pop queues of a topic again."""
        self._told.append(listener)

    def __call__(self, group: str, topic: str, now_ms: int) -> None:
        """Call the registered functions: the group may pop queues of the topic again. If the disk
        cannot read the group's messages now, other groups are served nevertheless."""
        for listener in self._told:
            try:
                listener(group, topic, now_ms)
            except (OSError, StorageError) as error:
                if (end := self._unread.suppressed_note(f"{group} {topic}", now_ms)) is not None:
                    _log.error("waiting pops of group %s are served later: %s%s", group, error, end)


class PopPart(Part):
    """Pop consumption of one broker, as one part: handlers, messages in flight, and offsets."""

    name = "pops"

    def __init__(
        self,
        *,
        ledger: PopLedger,
        orders: OrderlyBatches,
        pops: PopHandlers,
        peeks: PeekHandlers,
        acks: AckHandlers,
        assignments: AssignmentHandlers,
        saver: OffsetSaver,
    ) -> None:
        self.ledger = ledger
        self.orders = orders
        self._pops = pops
        self._peeks = peeks
        self._acks = acks
        self._assignments = assignments
        self._saver = saver
        self.work = *acks.work, saver.waiting

    def set_arrival_server(self, tell: Callable[[int], None]) -> None:
        """Set the function that serves waiting requests with arrived messages before a new request
        takes them."""
        self._pops.set_arrival_server(tell)

    @property
    def handlers(self) -> tuple[object, ...]:
        """Return the handlers of the pop requests."""
        return self._pops, self._peeks, self._acks, self._assignments

    def load(self, start: StartContext) -> None:
        """Load messages in flight, queues in order and consume modes from the last run."""
        start.read_optional_table(assignment.PATH, self._assignments.modes.load)
        start.read_optional_table(
            orderly_pops.PATH, lambda data: self.orders.load(data, start.now_ms)
        )
        self.ledger.load(start.now_ms, is_sound=start.is_sound)
        self.orders.catch_up(self.ledger.group_offset)
        start.restore_groups(list(self.ledger.popped.counts), start.now_ms)

    def finish_input(self, now_ms: int) -> None:
        """Store the acknowledgements of this input."""
        self._acks.finish_input(now_ms)
        self._saver.write_if_durable()

    def serve_arrival(self, arrival: Arrival, now_ms: int) -> None:
        """Pass an arrived message to the waiting pops, or a revive record to the ledger."""
        if arrival.topic == self.ledger.topic:
            self.ledger.apply_arrival(arrival, now_ms)
        else:
            self._pops.serve_arrival(arrival, now_ms)
            self._peeks.serve_arrival(arrival, now_ms)

    def forget_topic(self, topic: str) -> None:
        """Treat the popped messages of a deleted topic as acknowledged."""
        self.ledger.forget_topic(topic)
        self.orders.forget_topic(topic)

    def forget_group(self, group: str) -> None:
        """Forget all messages in flight to a deleted group."""
        self.ledger.forget_group(group)
        self.orders.forget_group(group)

    @property
    def poll_tables(self) -> tuple[PopPolls[Pop], PopPolls[Pop]]:
        """Return the tables of waiting pops and of waiting notification requests."""
        return self._pops.polls, self._peeks.polls

    def disconnected(self, peer: Peer, now_ms: int) -> None:
        """Drop the waiting requests of a disconnected client."""
        self._pops.disconnected(peer.id)
        self._peeks.disconnected(peer.id)

    def wake(self, now_ms: int) -> None:
        """Make due messages visible again, and answer due requests."""
        self.ledger.wake(now_ms)
        self._pops.wake(now_ms)
        self._peeks.wake(now_ms)

    def wake_at_ms(self) -> int:
        """The time at which `wake` has something to do next."""
        return min(self.ledger.wake_at_ms(), self._pops.wake_at_ms(), self._peeks.wake_at_ms())

    def clock_leapt(self, by_ms: int) -> None:
        """Shift the invisible times by the clock's jump: messages stay invisible for their full
        span."""
        self.ledger.popped.clock_leapt(by_ms)
        self.orders.clock_leapt(by_ms)

    def files_to_save(self, now_ms: int) -> tuple[File, ...]:
        """Encode the consumer offsets and the messages in flight, to be written once the log they
        refer to is durable. Return no files."""
        self._saver.save_when_durable(now_ms)
        self.ledger.begin_carrying()
        return NOTHING

    def final_files(self, now_ms: int) -> tuple[File, ...]:
        """Return the files to write when the broker stops."""
        self.ledger.note_progress(now_ms)
        return tuple(self._saver.final_files(now_ms))
