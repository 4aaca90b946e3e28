"""Parses where to start and to end: by offset, by time, or at either end of the queues.

`startingOffsets`      `earliest`, `latest`, `group:NAME` for where a consumer group is, or
                       {"topic": {"broker": {"0": 17, "1": -2}}}
                       with -2 for the earliest offset and -1 for the latest one
`startingTimestamp`    ms since 1970, or an ISO time, for all queues
`startingOffsetsByTimestamp`   {"topic": ms}, or {"topic": {"broker": {"0": ms}}}
Likewise with `ending`. A timestamp for all overrides those per queue, which override offsets.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.brokers.options import UserOptions

EARLIEST: Final = -2
LATEST: Final = -1

_GROUP: Final = "group:"

Side = Literal["starting", "ending"]
Table = dict[str, dict[str, dict[int, int]]]


class QueuePositions(msgspec.Struct, frozen=True, kw_only=True):
    """A position in every queue."""

    option: str
    """The option that set it, for error messages."""
    word: int = EARLIEST
    """EARLIEST or LATEST, if neither a table nor a time was given."""
    group: str = ""
    """A consumer group, to start at its offsets."""
    offsets: Table | None = None
    times: Table | None = None
    topic_times: dict[str, int] = {}
    time_ms: int | None = None
    takes_latest: bool = False
    """Whether to start at the end if no message is that young, instead of refusing."""

    @property
    def may_move(self) -> bool:
        """Whether the position may be another one if it is looked up later."""
        return self.offsets is None

    def time_of(self, queue: MessageQueue) -> int | None:
        """The time to look up in a queue; None if none was given."""
        if self.time_ms is not None:
            return self.time_ms
        if self.times is None:
            return None
        found = self.topic_times.get(queue.topic)
        return found if found is not None else self._listed_offset(self.times, queue, "time")

    def offset_of(self, queue: MessageQueue) -> int:
        """The offset given for a queue, possibly EARLIEST or LATEST."""
        return (
            self.word
            if self.offsets is None
            else self._listed_offset(self.offsets, queue, "offset")
        )

    def require_known(self, queues: Iterable[MessageQueue]) -> None:
        """Raise UsageError for the first queue in the options that is not among these."""
        known = {(queue.topic, queue.broker_name, queue.queue_id) for queue in queues}
        topics = {topic for topic, _, _ in known}
        for topic in self.topic_times:
            if topic not in topics:
                raise UsageError(
                    f"{self.option} names the topic {topic!r}, which is not read; there are "
                    f"{', '.join(sorted(topics))}"
                )
        for topic, brokers in ((self.offsets or self.times) or {}).items():
            for broker, numbers in brokers.items():
                for number in numbers:
                    if (topic, broker, number) not in known:
                        raise UsageError(
                            f"{self.option} names queue {number} of {topic} on {broker}, "
                            "which is not read; check it for typos, or leave it out"
                        )

    def _listed_offset(self, table: Table, queue: MessageQueue, what: str) -> int:
        found = table.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
        if found is None:
            raise UsageError(
                f"{self.option} has no {what} for queue {queue.queue_id} of {queue.topic} on "
                f"{queue.broker_name}; name every queue; -2 means the earliest, -1 the latest"
            )
        return found


def parse_positions(given: UserOptions, side: Side, *, default: int) -> QueuePositions:
    """Parse the options for one side, start or end."""
    by_time, by_offset = f"{side}OffsetsByTimestamp", f"{side}Offsets"
    strategy = given.choice(
        f"{side}OffsetsByTimestampStrategy", allowed=("error", "latest"), default="error"
    )
    takes_latest = strategy == "latest" or side == "ending"
    word = given.text(by_offset)
    if given.has(f"{side}Timestamp"):
        given.has(by_time)
        time_ms = _parse_time(given, f"{side}Timestamp")
        return QueuePositions(option=f"{side}Timestamp", time_ms=time_ms, takes_latest=takes_latest)
    if given.has(by_time):
        whole, table = _parse_times(by_time, given.value(by_time))
        return QueuePositions(
            option=by_time, topic_times=whole, times=table, takes_latest=takes_latest
        )
    words = {"": default} | ({"earliest": EARLIEST} if side == "starting" else {})
    words["latest"] = LATEST
    if word.lower() in words:
        return QueuePositions(option=by_offset, word=words[word.lower()])
    if side == "starting" and word.lower().startswith(_GROUP):
        group = word[len(_GROUP) :].strip()
        if not group:
            raise UsageError(f"{by_offset}={word!r}; name the consumer group, as group:mailer")
        return QueuePositions(option=by_offset, group=group)
    if not word.startswith("{"):
        others = ["group:NAME"] if side == "starting" else []
        allowed = ", ".join([*(each for each in words if each), *others, "JSON"])
        raise UsageError(f"{by_offset}={word!r}; one of {allowed} is expected")
    low = EARLIEST if side == "starting" else LATEST
    return QueuePositions(
        option=by_offset, offsets=_parse_table(by_offset, given.value(by_offset), low)
    )


def parse_assignment(option: str, value: object) -> dict[str, dict[str, list[int]]]:
    """Parse the queues of the option `assign`: {"topic": {"broker": [0, 1]}}."""
    found: dict[str, dict[str, list[int]]] = {}
    for topic, brokers in _require_object(option, value).items():
        for broker, queues in _require_object(option, brokers).items():
            if not (isinstance(queues, list) and queues and all(map(_is_number, queues))):
                raise UsageError(
                    f"{option}: {queues!r} for {topic} on {broker}; a list of queues is expected, "
                    'as {"orders": {"broker-a": [0, 1]}}'
                )
            found.setdefault(topic, {})[broker] = sorted(set(queues))
    if not found:
        raise UsageError(f'{option} names no queue; write {{"orders": {{"broker-a": [0, 1]}}}}')
    return found


def _parse_time(given: UserOptions, option: str) -> int:
    """Return milliseconds since 1970, from such a number or an ISO time; UTC if it has no zone."""
    text = given.text(option).strip()
    if text.isdecimal():
        return given.number(option, default=0)
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise UsageError(
            f"{option}={text!r} is not a time; milliseconds since 1970, or an ISO time such "
            "as 2026-11-21T12:00Z, are expected"
        ) from error
    moment = found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    if moment.timestamp() < 0:
        raise UsageError(f"{option}={text!r} is before 1970; give a later time")
    return int(moment.timestamp() * 1000)


def _parse_times(option: str, value: object) -> tuple[dict[str, int], Table]:
    whole: dict[str, int] = {}
    table: dict[str, Any] = {}
    for topic, found in _require_object(option, value).items():
        if _is_number(found):
            whole[topic] = found
        else:
            table[topic] = found
    return whole, _parse_table(option, table, 0)


def _parse_table(option: str, value: object, low: int) -> Table:
    found: Table = {}
    for topic, brokers in _require_object(option, value).items():
        for broker, queues in _require_object(option, brokers).items():
            for queue, number in _require_object(option, queues).items():
                if not (queue.isdecimal() and isinstance(number, int) and number >= low):
                    raise UsageError(
                        f"{option}: {queue!r}: {number!r} for {topic} on {broker}; a queue's "
                        f"number and a whole number from {low} on are expected"
                    )
                found.setdefault(topic, {}).setdefault(broker, {})[int(queue)] = number
    return found


def _require_object(option: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(
            f"{option}: {value!r} where an object is expected, as "
            '{"orders": {"broker-a": {"0": 17}}}'
        )
    return value


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
