"""Settings of a consumer."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from escrowmq.base.fixed_limits import INT_MAX
from escrowmq.client.blocking.delivery import Delivery as PlainDelivery
from escrowmq.client.client_settings import ClientOptions, unknown_setting_error
from escrowmq.client.core.allocation import STRATEGIES
from escrowmq.client.core.callables import has_yield, takes_one_argument
from escrowmq.client.core.hooks import Interceptor
from escrowmq.client.core.redelivery import ATTEMPTS_DEFAULT, BROKER_DECIDES, delay_level
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.delivery import Delivery
from escrowmq.client.producer_settings import ConnectionSettings
from escrowmq.errors import UsageError

Handler = (
    Callable[[PlainDelivery], None]
    | Callable[[list[PlainDelivery]], None]
    | Callable[[Delivery], Awaitable[object]]
    | Callable[[list[Delivery]], Awaitable[object]]
)
"""The user's handler. It gets a delivery (a list of them if `batch_max` is above 1), returns when
it has consumed the messages, and raises to have them redelivered. A plain function gets an
`escrowmq.Delivery`, a coroutine function an `escrowmq.aio.Delivery`."""

Start = Literal["first", "last"] | dt.datetime
"""Where a new group starts: at the oldest message, at new messages, or at a time."""

PULL_COUNT_MAX = 1_024
CONCURRENCY_MAX = 1_024


class ConsumerSettings(ConnectionSettings, total=False):
    """All settings of a consumer as keywords; see `ConsumerOptions`."""

    topic: str
    tags: str
    sql: str
    topics: Sequence[str] | Mapping[str, str]
    queues: Sequence[MessageQueue]
    handler: Handler | None
    on_assigned: Callable[[list[MessageQueue]], Any] | None
    on_revoked: Callable[[list[MessageQueue]], Any] | None
    concurrency: int
    batch_max: int
    mode: Literal["pull", "pop"]
    is_orderly: bool
    is_broadcasting: bool
    consume_from: Start
    strategy: str
    attempts_max: int
    retry_after_s: float | Sequence[float]
    suspend_ms: int
    consume_timeout_ms: int
    prefetch_max: int
    prefetch_size_max: int
    prefetch_span_max: int
    pull_count: int
    pull_wait_ms: int
    auto_commit: bool
    commit_interval_ms: int
    rebalance_interval_ms: int
    close_timeout_ms: int
    invisible_ms: int
    offsets_folder: str
    interceptors: Sequence[Interceptor]
    trace: bool | str


class ConsumerOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of a consumer, with their defaults. Times are in milliseconds."""

    topic: str = ""
    tags: str = ""
    """Tags of `topic` to receive, as in `card || cash`; all if empty."""
    sql: str = ""
    """A condition over properties in SQL92 for `topic`, instead of tags."""
    topics: Sequence[str] | Mapping[str, str] = ()
    """Several topics, or a dictionary from topics to their tags."""
    queues: Sequence[MessageQueue] = ()
    """Read these queues and no others. The consumer is then not a member of the group: it shares
    with no other consumer, and only stores its offsets under the group's name."""
    handler: Handler | None = None
    """Is called with every message, on threads if it is a plain function."""
    on_assigned: Callable[[list[MessageQueue]], Any] | None = None
    """Called with the queues that this member starts to read: a plain function, called on a thread,
    or a coroutine function. The calls come one after another."""
    on_revoked: Callable[[list[MessageQueue]], Any] | None = None
    """Called with the queues that this member no longer reads, after their offsets were committed.
    When the consumer closes, these are all its queues."""
    concurrency: int = 20
    """Handlers that run at the same time."""
    batch_max: int = 1
    """Messages per call of the handler; it gets a list if this is above 1."""
    mode: Literal["pull", "pop"] = "pull"
    """With `pop` the broker distributes single messages: no queue belongs to one member."""
    is_orderly: bool = False
    """Whether messages of one queue are handled one after another. A failing message blocks its
    queue."""
    is_broadcasting: bool = False
    """Every member gets every message; offsets are kept in `offsets_folder`."""
    consume_from: Start = "first"
    strategy: str = "average"
    """How the members share the queues: `average`, `circle` or `consistent-hash`; all members must
    use the same."""
    attempts_max: int = ATTEMPTS_DEFAULT
    """How often a failing message is redelivered, as RocketMQ counts, before it becomes a dead
    letter. 0 means at its first failure, and for an orderly consumer never."""
    retry_after_s: float | Sequence[float] = ()
    """The delay before a failed message is redelivered: one value, or a list by attempt, whose last
    value holds for all further attempts. Rounded up to the broker's next delay level. By default
    the broker's own back-off (10 s, 30 s, 1 min, ... up to 2 h)."""
    suspend_ms: int = 1_000
    """How long a failed message blocks its queue before it is retried (orderly)."""
    consume_timeout_ms: int = 900_000
    """A handler that runs longer is abandoned, and its message is redelivered."""
    prefetch_max: int = 1_000
    """Messages of one queue that wait here or are being handled; in mode `pop`, of one topic at one
    broker, and at most 96. No other member of the group gets prefetched messages."""
    prefetch_size_max: int = 100 * 1024 * 1024
    """Bytes of all bodies that wait here or are being handled."""
    prefetch_span_max: int = 2_000
    """Offsets between the oldest unsettled message and the newest fetched."""
    pull_count: int = 32
    """Messages per pull request."""
    pull_wait_ms: int = 15_000
    """How long a broker holds a request until there is a message."""
    auto_commit: bool = True
    """Commit offsets every `commit_interval_ms` and at the end; otherwise only `commit()` does."""
    commit_interval_ms: int = 5_000
    rebalance_interval_ms: int = 20_000
    close_timeout_ms: int = 5_000
    """How long close() waits for running handlers."""
    invisible_ms: int = 60_000
    """How long a popped message is hidden from others (mode `pop`). The time is renewed while a
    handler, or the body of a loop over the consumer, has the message, up to `consume_timeout_ms`.
    After `receive()` it is not renewed."""
    offsets_folder: str = ""
    """The folder in which a broadcasting consumer stores its offsets. Each process needs one of its
    own: two members of a group would overwrite each other's."""
    interceptors: Sequence[Interceptor] = ()
    """For tracing and metrics."""
    trace: bool | str = False
    """Write RocketMQ's message trace: True to RMQ_SYS_TRACE_TOPIC, a text to the topic of this
    name."""

    def __post_init__(self) -> None:
        bounds = {
            "concurrency": CONCURRENCY_MAX,
            "batch_max": PULL_COUNT_MAX,
            "pull_count": PULL_COUNT_MAX,
        }
        for name in ("concurrency", "batch_max", "suspend_ms", "consume_timeout_ms",
                     "prefetch_max", "prefetch_size_max", "prefetch_span_max", "pull_count",
                     "pull_wait_ms", "commit_interval_ms", "rebalance_interval_ms",
                     "close_timeout_ms", "invisible_ms"):  # fmt: skip
            self._check_number(name, bounds.get(name))
        self._check_number("attempts_max", INT_MAX, lowest=0)
        if self.strategy not in STRATEGIES:
            known = ", ".join(sorted(STRATEGIES))
            raise UsageError(f"strategy={self.strategy!r}; one of {known} is expected")
        if self.mode not in ("pull", "pop"):
            raise UsageError(f"mode={self.mode!r}; 'pull' or 'pop' is expected")
        for attempt in range(len(self._retry_delays())):
            self.next_retry_level(attempt)
        self._check_start()
        self._check_selection()
        self._check_combinations()

    def next_retry_level(self, deliveries_before: int) -> int:
        """Return the delay level for redelivering a message that has failed once more."""
        pauses = self._retry_delays()
        if not pauses:
            return BROKER_DECIDES
        try:
            return delay_level(pauses[min(deliveries_before, len(pauses) - 1)])
        except UsageError as error:
            raise UsageError(f"retry_after_s={self.retry_after_s!r}; {error}") from error

    def is_last_attempt(self, deliveries_before: int) -> bool:
        """Whether a message that fails now becomes a dead letter."""
        return not self.is_broadcasting and self.is_given_up(deliveries_before)

    def is_given_up(self, deliveries_before: int) -> bool:
        """Whether a message that fails now is not redelivered. A broadcast is given up at once,
        unless its consumer is orderly, which repeats it itself."""
        if self.is_orderly and not self.attempts_max:
            return False
        is_repeated = self.is_orderly or not self.is_broadcasting
        return not is_repeated or deliveries_before >= self.attempts_max

    def _retry_delays(self) -> Sequence[float]:
        given = self.retry_after_s
        return given if isinstance(given, Sequence) else (given,)

    def _check_number(self, name: str, highest: int | None, *, lowest: int = 1) -> None:
        value: object = getattr(self, name)
        if not isinstance(value, int) or value < lowest or (highest and value > highest):
            until = f"to {highest}" if highest else "on"
            raise UsageError(f"{name}={value!r}; a whole number from {lowest} {until} is expected")

    def _check_start(self) -> None:
        start = self.consume_from
        if isinstance(start, dt.datetime):
            if start.tzinfo is None:
                raise UsageError(f"consume_from={start!r} has no time zone; give it one")
        elif start not in ("first", "last"):
            raise UsageError(f"consume_from={start!r}; 'first', 'last' or a datetime is expected")

    def _check_selection(self) -> None:
        given: list[tuple[str, object]] = [("tags", self.tags), ("sql", self.sql)]
        for name, value in given:
            if not isinstance(value, str):
                raise UsageError(f"{name}={value!r}; a text is expected, such as tags='a || b'")
        queues: object = self.queues
        if not isinstance(queues, Sequence) or not all(
            isinstance(queue, MessageQueue) for queue in queues
        ):
            raise UsageError(f"queues={queues!r}; a list of escrowmq.MessageQueue is expected")

    def _check_combinations(self) -> None:
        if self.handler is not None and not callable(self.handler):
            raise UsageError(f"handler={self.handler!r} cannot be called; give a function")
        if has_yield(self.handler):
            raise UsageError(
                f"handler={self.handler!r} has a yield, so calling it runs none of its code; "
                "give a function that handles the message when it is called"
            )
        if self.handler is not None and not takes_one_argument(self.handler):
            raise UsageError(
                f"handler={self.handler!r} cannot be called with one argument, the message (a list "
                "of them when batch_max is above 1)"
            )
        for name in ("on_assigned", "on_revoked"):
            value = getattr(self, name)
            if value is not None and (not callable(value) or not takes_one_argument(value)):
                raise UsageError(f"{name}={value!r} cannot be called with one argument, the queues")
            if value is not None and self.mode == "pop":
                raise UsageError(
                    f"{name}= cannot be combined with mode='pop', in which queues have no owner"
                )
        if self.is_broadcasting and not self.offsets_folder:
            raise UsageError(
                "a broadcasting consumer stores its offsets itself; give offsets_folder="
            )
        if self.mode == "pop" and (self.is_orderly or self.is_broadcasting):
            raise UsageError("mode='pop' cannot be combined with is_orderly or is_broadcasting")
        if self.queues and (self.mode == "pop" or self.is_orderly or self.is_broadcasting):
            raise UsageError(
                "queues= is for one reader; it cannot be combined with other ways of sharing"
            )
        if not self.topic and (self.tags or self.sql):
            raise UsageError("tags= and sql= apply to topic=, which is not given")


def split_consumer_settings(
    settings: Mapping[str, Any],
) -> tuple[ConsumerOptions, dict[str, object]]:
    """Split settings into the consumer's own and those of its connections. Raises UsageError for
    unknown ones."""
    own = {name: settings[name] for name in settings if name in ConsumerOptions.__struct_fields__}
    rest = {name: settings[name] for name in settings if name not in own}
    unknown = [name for name in rest if name not in ClientOptions.__struct_fields__]
    if unknown:
        known = [*ConsumerOptions.__struct_fields__, *ClientOptions.__struct_fields__[1:]]
        raise unknown_setting_error(unknown, known, of="a consumer")
    return ConsumerOptions(**own), rest
