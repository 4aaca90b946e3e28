"""Copies a master's tables to its slave: topics, groups, offsets and progress, requested in rounds.
RocketMQ's slaves do so once a minute (SlaveSynchronize).

Offsets and progress refer to positions in the log. They take effect only once the slave's log
reaches the end that the master's log had then. Otherwise a slave that is promoted would count
messages as consumed that it does not have.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.effects import Replace
from escrowmq.broker.output import Output
from escrowmq.broker.upkeep.start_checks import OFFSETS_FILE
from escrowmq.codec import fastjson
from escrowmq.codec.client_bodies import decode_body
from escrowmq.codec.large_answers import decompressed_body
from escrowmq.codec.store_entries import is_path_safe
from escrowmq.delivery import assignment, delay_queues, timer_file
from escrowmq.delivery.groups import GroupTable
from escrowmq.delivery.offsets import OffsetTable
from escrowmq.delivery.topics import TopicTable
from escrowmq.errors import EscrowMQError
from escrowmq.store.copied_log import CopiedLog
from escrowmq.store.store import Store

_log = logging.getLogger(__name__)

ROUND_MS: Final = 2_000
"""The pause between rounds. Changes at the master arrive within 5 s."""

_AT_ONCE: Final = (Request.GET_ALL_TOPIC_CONFIG, Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
_BEHIND_THE_LOG: Final = (
    Request.GET_ALL_MESSAGE_REQUEST_MODE,
    Request.GET_ALL_CONSUMER_OFFSET,
    Request.GET_ALL_DELAY_OFFSET,
    Request.GET_TIMER_CHECK_POINT,
)


class TablesState(msgspec.Struct, frozen=True):
    """The versions of a master's tables, and the ends of its log. A version changes whenever its
    table does."""

    topics: int
    groups: int
    offsets: int
    log_begin: int
    log_end: int
    deleted: dict[str, tuple[int, int]] = {}
    """By deleted topic: the end of the log at the deletion, and the time of its last record."""
    ended: dict[str, dict[int, int]] = {}
    """The ends of queues without records, by topic and queue id, if they were asked for."""


_STATE_FIELDS: Final = {
    Request.GET_ALL_TOPIC_CONFIG: "topics",
    Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "groups",
    Request.GET_ALL_CONSUMER_OFFSET: "offsets",
}

SendTableRequest = Callable[[int, Callable[[Command | None, int], None]], None]
"""Sends a request to the master, and calls a function with the answer."""


class TableCopier:
    """Requests a master's tables in rounds, over one connection, and applies them to the slave."""

    def __init__(
        self,
        *,
        store: Store,
        log: CopiedLog,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        output: Output,
        ask: SendTableRequest,
    ) -> None:
        self._store = store
        self._log = log
        self._topics, self._groups, self._offsets = topics, groups, offsets
        self._output = output
        self._ask = ask
        self._todo: deque[int] = deque()
        self._fetched: dict[int, bytes] = {}
        """Answers that are applied once the log has reached the master's end."""
        self._known: TablesState | None = None
        self._bodies: dict[int, bytes] = {}
        self._asked_end = 0
        """The end of the master's log before the tables of this round were requested."""
        self._offsets_end = 0
        """The end of the master's log before the newest offsets were requested."""
        self._delays_end = 0
        """The end of the master's log before the progress of the delay levels was requested."""
        self._lives: dict[str, tuple[int, int]] = {}
        self._listed: frozenset[str] = frozenset()
        """The topics whose deletions the master has listed, applied here or not."""
        self._ended: dict[str, dict[int, int]] = {}
        self.has_queue_ends = False
        """Whether this master's ends of queues without records are applied, once a connection."""
        self._gone: dict[str, int] = {}
        """By topic that the master no longer has: where its log ended before it reported that."""
        self._is_ours = True
        self._needed_end = -1
        self._faults: set[str] = set()
        self.due_ms = 0
        self.log_begin = self.log_end = -1
        """The beginning and end of the master's log, as of its last answer; -1 before the first."""
        self.is_complete = False
        """Whether all tables were applied at least once."""

    def start_over(self) -> None:
        """Start over on a new connection, which may lead to another master."""
        self._todo.clear()
        self._fetched.clear()
        self._known = None
        self._needed_end = -1
        self._bodies.clear()
        self.has_queue_ends = False
        self._is_ours = True
        self.due_ms = 0

    def wake(self, now_ms: int) -> None:
        """Begin a round when it is due."""
        if now_ms < self.due_ms:
            return
        # A round without an answer ends with its connection, or when the next one begins.
        self.due_ms = now_ms + ROUND_MS
        self._request_state(self._choose_tables)

    # -- what has changed --------------------------------------------------------------------

    def _request_state(self, on_state: Callable[[TablesState, int], None]) -> None:
        code = Request.ESCROW_REPLICA_STATE if self._is_ours else Request.GET_BROKER_RUNTIME_INFO

        def on_reply(reply: Command | None, now_ms: int) -> None:
            if reply is None:
                return
            if reply.code == Response.REQUEST_CODE_NOT_SUPPORTED and self._is_ours:
                self._is_ours = False  # RocketMQ's
                self._request_state(on_state)
            elif reply.code == Response.SUCCESS:
                self._apply_or_log("its state", lambda: on_state(self._parse_state(reply), now_ms))
            else:
                self._log_fault(f"its state is not told: {reply.remark}")

        self._ask(code, on_reply)

    def _parse_state(self, reply: Command) -> TablesState:
        if self._is_ours:
            state = decode_body(TablesState, reply.body)
        else:
            table = fastjson.decode_fastjson(reply.body)["table"]
            begin, end = int(table["commitLogMinOffset"]), int(table["commitLogMaxOffset"])
            state = TablesState(0, 0, 0, log_begin=begin, log_end=end)
        self.log_begin, self.log_end = state.log_begin, state.log_end
        return state

    def _choose_tables(self, state: TablesState, now_ms: int) -> None:
        wanted: tuple[int, ...] = _AT_ONCE + _BEHIND_THE_LOG
        known = self._known
        if known is not None and self._is_ours:
            wanted = tuple(
                code
                for code in wanted
                if (field := _STATE_FIELDS.get(code)) is None
                or getattr(known, field) != getattr(state, field)
            )
        self._known = state
        self._asked_end = state.log_end
        self._todo = deque(wanted)
        self._request_next_table(now_ms)

    def _request_next_table(self, now_ms: int) -> None:
        if not self._todo:
            self._request_state(self._set_needed_end)
            return
        code = self._todo.popleft()

        def on_reply(reply: Command | None, now_ms: int) -> None:
            if reply is None:
                self._known = None  # so the next round requests all tables
                return
            if reply.code == Response.SUCCESS:
                self._apply_or_log(
                    f"the answer to request {code}",
                    lambda: self._accept_table(code, decompressed_body(reply)),
                )
            elif code != Request.GET_TIMER_CHECK_POINT:  # it may have no timer
                self._known = None
                self._log_fault(f"request {code} is not served: {reply.remark}")
            self._request_next_table(now_ms)

        self._ask(code, on_reply)

    def _set_needed_end(self, state: TablesState, now_ms: int) -> None:
        """Note where the master's log ended after all tables were requested. The tables are applied
        once the slave's log has reached that."""
        self._needed_end = state.log_end
        self._lives = dict(state.deleted)
        self._listed = frozenset(state.deleted)
        self._ended = state.ended
        self.apply_fetched()

    def create_missing_topics(self, topics: dict[str, int], now_ms: int) -> None:
        """Create topics and queues that occur in the copied log and are unknown here, so that a
        slave that is promoted now has them. The next round requests all topics, in case these were
        deleted since."""
        for topic, queue_id in topics.items():
            if self._is_unknown_queue(topic, queue_id) and is_path_safe(topic):
                self._create_queues(topic, queue_id + 1, now_ms)
                self._known = None
                self._bodies.pop(Request.GET_ALL_TOPIC_CONFIG, None)

    def _is_unknown_queue(self, topic: str, queue_id: int) -> bool:
        config = self._topics.get(topic)
        return config is None or queue_id >= max(config.read_queue_nums, config.write_queue_nums)

    def _create_queues(self, topic: str, count: int, now_ms: int) -> None:
        config = self._topics.get(topic)
        if config is None:
            self._topics.get_or_create(topic, queues_count=count, now_ms=now_ms)
        else:
            wider = msgspec.structs.replace(config, read_queue_nums=count, write_queue_nums=count)
            self._topics.put(wider, now_ms)

    def _is_newer_than_answer(self, topic: str) -> bool:
        return self._has_messages_after(topic, self._asked_end)

    def _has_messages_after(self, topic: str, log_end: int) -> bool:
        """Whether a topic has messages after a log offset. If that is the master's end at its
        answer, the topic was created after the answer."""
        store = self._store
        for queue_id in store.queues_of(topic):
            last = store.bounds(topic, queue_id)[1] - 1
            if any(at >= log_end for at, _, _ in store.read_units(topic, queue_id, last, 1)):
                return True
        return False

    # -- taking over -------------------------------------------------------------------------

    def _accept_table(self, code: int, body: bytes) -> None:
        is_timer = code == Request.GET_TIMER_CHECK_POINT
        compared = timer_file.progress_part(body) if is_timer else body
        if self._bodies.get(code) == compared:
            return
        if code == Request.GET_ALL_TOPIC_CONFIG:
            gone = self._topics.replace_with(body, self._is_newer_than_answer)
            self._gone |= dict.fromkeys(gone, self._asked_end)
        elif code == Request.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            self._groups.replace_with(body)
        else:
            self._fetched[code] = body
            if code == Request.GET_ALL_CONSUMER_OFFSET:
                self._offsets_end = self._asked_end
            elif code == Request.GET_ALL_DELAY_OFFSET:
                self._delays_end = self._asked_end
        self._bodies[code] = compared

    def apply_fetched(self) -> None:
        """Apply the fetched tables and deletions, if the log has reached the end they refer to."""
        if self._needed_end < 0 or self._store.end_offset < self._needed_end:
            return
        self._needed_end = -1
        for topic, (log_end, stored_ms) in [*self._lives.items()]:
            if self._log.deletions.apply_deletion(topic, log_end, stored_ms):
                del self._lives[topic]
        gone, self._gone = self._gone, {}
        for topic, log_end in gone.items():
            # A listed deletion says which records the master has removed. It keeps delayed messages
            # that were due later, although their topic is gone.
            is_unlisted = topic not in self._listed and self._topics.get(topic) is None
            if is_unlisted and not self._has_messages_after(topic, log_end):
                self._store.delete_topic(topic)
        if not self.has_queue_ends:
            self._apply_or_log("the ends of its queues", self._apply_queue_ends)
        fetched, self._fetched = self._fetched, {}
        for code, body in fetched.items():
            self._apply_or_log(
                f"the answer to request {code}", partial(self._apply_table, code, body)
            )
        self.is_complete = True

    def _apply_queue_ends(self) -> None:
        self._log.continue_queues(self._ended)
        self.has_queue_ends = True

    def _apply_table(self, code: int, body: bytes) -> None:
        if code == Request.GET_ALL_CONSUMER_OFFSET:
            self._offsets.replace_with(body)
            data = self._offsets.content_to_save(log_end=self._offsets_end)
            self._output.add_effect(Replace(OFFSETS_FILE, data))
        elif code == Request.GET_ALL_DELAY_OFFSET:
            data = delay_queues.with_log_offset(body, self._delays_end)
            self._output.add_effect(Replace(delay_queues.PATH, data))
        elif code == Request.GET_TIMER_CHECK_POINT:
            self._output.add_effect(Replace(timer_file.PATH, timer_file.complete_file(body)))
        else:
            fastjson.decode_fastjson(body)
            self._output.add_effect(Replace(assignment.PATH, body))

    def _apply_or_log(self, what: str, take: Callable[[], object]) -> None:
        """Process an answer of the master; log a fault if it is invalid."""
        try:
            take()
        except (EscrowMQError, msgspec.MsgspecError, AttributeError, KeyError, TypeError,
                ValueError, OverflowError) as error:  # fmt: skip
            self._known = None
            self._log_fault(f"{what} cannot be read ({type(error).__name__}: {error})")

    def _log_fault(self, fault: str) -> None:
        if fault not in self._faults:
            self._faults = {fault}
            _log.error("not all tables of the master could be copied: %s", fault)
