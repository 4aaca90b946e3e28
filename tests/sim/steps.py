"""What must hold at every moment that a consumer may look: transactions of several messages are
visible whole or not at all, order keys choose the queue at the commit, delays are kept."""

from __future__ import annotations

from collections import defaultdict

from escrowmq.base.delay_levels import parse_delay_levels
from escrowmq.base.message import Property, Topic
from escrowmq.base.own_properties import ORDER_KEY, TRANSACTION
from escrowmq.broker.core import BrokerCore
from escrowmq.codec.hashes import java_hash
from escrowmq.txn.half_records import is_delayed
from tests.sim.ledger import COMMIT, Ident, Ledger
from tests.sim.reading import Reading, Seen, scope_of
from tests.sim.stage import Stage, Violation


class Steps:
    """Looks at what became visible in each input of a broker."""

    def __init__(self, stage: Stage, ledger: Ledger, topics: tuple[tuple[str, int], ...]) -> None:
        self._stage = stage
        self._ledger = ledger
        self._counts: dict[str, list[tuple[int, int, int]]] = {topic: [] for topic, _ in topics}
        """Write queues of each topic, and since when."""
        self._log_end = 0
        self._watched: BrokerCore | None = None

    def look(self, core: BrokerCore, reading: Reading, finals: list[Seen], now_ms: int) -> None:
        """Judge the finals that became visible at a time, one step or one start."""
        for final in finals:
            self._check_place(final, core)
        joined = [final for final in finals if TRANSACTION in final.message.properties]
        for scope in dict.fromkeys(map(scope_of, joined)):
            self._check_whole(core, reading, scope)

    def note_queues(self, core: BrokerCore) -> None:
        """Keep in mind how many queues the topics have, and from where in the log on: between its
        ends before and after the step that changed it."""
        self._watched = core
        before, end = self._log_end, core.broker.store.end_offset
        self._log_end = end
        for topic, counts in self._counts.items():
            if end < before:  # lost with the power, and written again
                counts[:] = [(min(low, end), min(high, end), count) for low, high, count in counts]
            config = core.broker.topics.get(topic)
            if config is not None and (not counts or counts[-1][2] != config.write_queue_nums):
                counts.append((min(before, end), end, config.write_queue_nums))

    def check_sizes(self, core: BrokerCore) -> None:
        """A start finds each topic as wide as an operator was told."""
        for topic, allowed in self._ledger.sizes.items():
            config = core.broker.topics.get(topic)
            found = 0 if config is None else config.write_queue_nums
            if found not in allowed:
                raise Violation(f"{topic} has {found} queues after a start, not one of {allowed}")
            self._stage.done["sizes of topics found again"] += 1

    # -- several messages ------------------------------------------------------------------------

    def _check_whole(self, core: BrokerCore, reading: Reading, scope: tuple[str, str]) -> None:
        """All messages of a transaction that were pending at its commit are visible."""
        seen: dict[int, Ident] = {}
        for number in reading.joined.get(scope, ()):  # none is seen while all wait for room
            half = reading.queues[Topic.HALF, 0][number]
            assert half is not None
            seen[number] = (half.key, half.log_offset)
        finals = [reading.finals[ident] for ident in seen.values() if ident in reading.finals]
        if not finals:
            return
        last = max(final.log_offset for final in finals)
        decided = core.transactions.engine.halves.partly_ended
        visible = {ident[0] for ident in seen.values() if ident in reading.finals}
        for number, ident in seen.items():
            if ident in reading.finals or ident[1] > last:
                continue
            letter = reading.outcomes.get(number, "pending")
            if letter in ("x", "-") and ident[0] in visible:
                continue  # resumed, or carried forward
            if ident[1] < reading.deleted_before:
                self._stage.done["transactions seen in part: the rest was deleted for its age"] += 1
                continue
            if number in decided:
                self._stage.done["transactions made whole later: no room"] += 1
                continue
            if ident in reading.waiting and "no descriptors" in self._stage.faults:
                self._stage.done["transactions made whole later: no descriptor"] += 1
                continue
            raise Violation(f"transaction {scope} is visible in part: {ident} is {letter!r}")
        if len(seen) > 1:
            self._stage.done["transactions of several messages seen whole"] += 1

    def check_ended_whole(self, core: BrokerCore, reading: Reading) -> None:
        """What was rolled back, or given up, was so with all messages of its transaction."""
        pending = core.transactions.engine.halves.pending
        decided = core.transactions.engine.halves.partly_ended
        for scope, numbers in reading.joined.items():
            ended_at = [reading.op_at[n] for n in numbers if reading.outcomes.get(n) in ("r", "x")]
            if not ended_at:
                continue
            for number in numbers:
                is_left = number in pending and number not in decided
                if is_left and pending.log_offset(number) < max(ended_at):
                    raise Violation(f"transaction {scope} was ended in part: {number} is pending")

    # -- order -----------------------------------------------------------------------------------

    def _check_place(self, final: Seen, core: BrokerCore) -> None:
        properties = final.message.properties
        key = properties.get(ORDER_KEY)
        if not key:
            self._check_read(final)
            return
        topic, queue_id = final.message.topic, final.message.queue_id
        if topic not in self._counts:
            topic, queue_id = properties[Property.REAL_TOPIC], int(properties[Property.REAL_QID])
        counts = self._counts_at(topic, final.log_offset)
        if core is not self._watched:  # what would be found: its own table may be an older one
            config = core.broker.topics.get(topic)
            counts = counts if config is None else {*counts, config.write_queue_nums}
        allowed = {abs(java_hash(key)) % count for count in counts}
        if queue_id not in allowed:
            raise Violation(f"{final.key} with order key {key} is in {topic} {queue_id}, its key "
                            f"says {allowed}")  # fmt: skip
        self._stage.done["order keys followed"] += 1

    def _check_read(self, final: Seen) -> None:
        """A message that its commit made visible is in a queue that somebody reads."""
        topic, queue_id = final.message.topic, final.message.queue_id
        if topic in self._counts and queue_id >= max(self._counts_at(topic, final.log_offset)):
            raise Violation(f"{final.key} is in {topic} {queue_id}, which nobody reads any more")

    def unread_before(self, queue: tuple[str, int]) -> int:
        """Before this log offset, messages of a queue may never be read: the topic has lost it."""
        counts = self._counts.get(queue[0], [])
        if not counts or queue[1] < counts[-1][2]:
            return 0
        return next(high for _, high, count in reversed(counts) if count <= queue[1])

    def _counts_at(self, topic: str, log_offset: int) -> set[int]:
        """The numbers of queues when a record was stored; several when they changed just then."""
        counts = self._counts[topic]
        found = {count for low, high, count in counts if low <= log_offset < high}
        before = [count for _, high, count in counts if high <= log_offset]
        return found | set(before[-1:]) or {count for _, _, count in counts[:1]}

    def check_order(self, reading: Reading) -> None:
        """Of two messages of one key the one whose commit was acknowledged before the other's
        was asked for stands first."""
        ledger = self._ledger
        lines: dict[tuple[str, int, str], list[tuple[int, Ident]]] = defaultdict(list)
        for ident, final in reading.finals.items():
            message = final.message
            key = message.properties.get(ORDER_KEY)
            if key and not is_delayed(message.properties):
                line = lines[message.topic, message.queue_id, key]
                line.append((message.queue_offset, ident))
        for line in lines.values():
            earliest_ms, whose = 1 << 62, None
            for _, ident in sorted(line, reverse=True):
                said_ms = ledger.said_ms(ident, COMMIT)
                if said_ms is not None and earliest_ms < said_ms:
                    raise Violation(f"{ident} stands before {whose}, and was committed after it")
                committed_ms = ledger.committed_ms.get(ident, 1 << 62)
                if committed_ms < earliest_ms:
                    earliest_ms, whose = committed_ms, ident

    # -- delays ----------------------------------------------------------------------------------

    def check_delays(self, reading: Reading, spans: str, *, has_gone_back: bool) -> None:
        """A delayed message is delivered once for each commit, and not before its time. A start
        with a clock behind the store's takes levels for due, as the peer does
        (ScheduleMessageService.correctDeliverTimestamp), and may deliver a second time."""
        spans_ms = parse_delay_levels(spans)
        placed: dict[str, list[Seen]] = defaultdict(list)
        for ident, final in reading.finals.items():
            if ident[0] in self._ledger.sent and is_delayed(final.message.properties):
                placed[ident[0]].append(final)
        for key, finals in placed.items():
            sent = self._ledger.sent[key]
            finals.sort(key=lambda final: final.message.stored_ms)
            delivered = reading.delivered.get(key, [])
            if len(delivered) > len(finals) and has_gone_back:
                self._stage.done["delivered again: the clock was set back"] += 1
            elif len(delivered) > len(finals):
                raise Violation(f"{key} was delivered {len(delivered)} times: {delivered}")
            for final in finals:
                is_direct = final.message.topic == sent.topic
                due_ms = sent.deliver_ms or final.message.stored_ms + spans_ms[sent.level]
                if is_direct and final.message.stored_ms < due_ms:
                    raise Violation(f"{key} came at its commit, {due_ms} is its time: {final}")
            lost = [seen for seen in finals if self._is_gone(reading, seen)]
            if lost and not delivered and key not in reading.waiting_late:
                raise Violation(f"{key} was deleted while it waited for its time: {lost}")
            due_ms = sent.deliver_ms or finals[0].message.stored_ms + spans_ms[sent.level]
            early = [seen for seen in delivered if seen.message.stored_ms < due_ms]
            if early and has_gone_back and sent.level:
                self._stage.done["delays cut short: the clock was set back"] += 1
            elif early:
                raise Violation(f"{key} came too early, {due_ms} is its time: {early}")

    @staticmethod
    def _is_gone(reading: Reading, final: Seen) -> bool:
        is_waiting = final.message.topic in (Topic.SCHEDULE, Topic.TIMER)
        return is_waiting and final.log_offset < reading.min_log_offset

    def undelivered(self, reading: Reading, now_ms: int) -> list[str]:
        """Keys of delayed messages in the log that were not delivered. Who named a time while the
        clock was days ahead waits for it."""
        found = []
        for ident, final in reading.finals.items():
            is_waiting = final.message.topic in (Topic.SCHEDULE, Topic.TIMER)
            sent = self._ledger.sent.get(ident[0])
            is_waiting = is_waiting and (sent is None or sent.deliver_ms <= now_ms)
            if is_waiting:
                found += [ident[0]] if ident[0] not in reading.delivered else []
        return found
