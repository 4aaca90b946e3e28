"""Settings of a producer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypedDict

import msgspec

from escrowmq.client.client_settings import ClientOptions, Credentials, unknown_setting_error
from escrowmq.client.core.callables import has_yield, takes_one_argument
from escrowmq.client.core.hooks import Interceptor
from escrowmq.client.core.message import Delay, Message, Moment, ReceivedMessage
from escrowmq.client.core.sending import Outcome
from escrowmq.client.core.validation import check_topic
from escrowmq.client.tls import TlsSetting
from escrowmq.codec.compression import FORMS
from escrowmq.errors import UsageError

Check = Callable[[Any], "Outcome | Awaitable[Outcome]"]
"""The user's function that answers a check-back: it gets the message, a `ReceivedMessage`, and
returns the outcome."""


class Listener(Protocol):
    """Local transaction and check as one object, as in RocketMQ's other clients."""

    def execute(self, message: Message, arg: object) -> Outcome:
        """Run the local transaction; the half is already stored."""

    def check(self, message: ReceivedMessage) -> Outcome:
        """Return the transaction's outcome."""


class MessageFields(TypedDict, total=False):
    """Optional fields of a message besides its topic and body; see `Message`."""

    tag: str
    keys: list[str] | str
    properties: dict[str, str]
    order_key: str
    delay_level: int
    delay: Delay | None
    deliver_at: Moment | None
    flag: int


class ConnectionSettings(TypedDict, total=False):
    """Settings that every client has; see `ClientOptions`."""

    credentials: Credentials | None
    tls: TlsSetting
    namespace: str
    is_namespace_v2: bool
    instance_name: str
    connect_timeout_ms: int
    request_timeout_ms: int
    route_interval_ms: int
    heartbeat_interval_ms: int


class ProducerSettings(ConnectionSettings, total=False):
    """All settings of a producer; see `ProducerOptions`."""

    timeout_ms: int
    linger_ms: int
    batch_size: int
    retries: int
    retries_unsafe: bool
    avoids_slow: bool
    asks_safety: bool
    compression: str
    compression_over_size: int
    compression_level: int
    body_size_max: int
    inflight_max: int
    inflight_size_max: int
    topics: Sequence[str]
    check: Check | None
    checkers: Mapping[str, Check]
    listener: Listener | None
    checks_running_max: int
    checks_held_max: int
    check_timeout_ms: int
    accepts_unsafe_halves: bool
    confirms_commits: bool
    interceptors: Sequence[Interceptor]
    trace: bool | str


class ProducerOptions(msgspec.Struct, kw_only=True, frozen=True):
    """Settings of a producer, with their defaults. Times are in milliseconds."""

    timeout_ms: int = 3_000
    """Timeout of one send, for all attempts together."""
    linger_ms: int = 0
    """Let `send` wait this many ms for other messages to its topic, and send them as one batch; 0
    sends each message immediately. It increases throughput for a little more latency."""
    batch_size: int = 65_536
    """Limit of the bytes of a batch of lingering messages, up to `body_size_max`. A full batch is
    sent immediately."""
    retries: int = 2
    """Number of further attempts after a failed one."""
    retries_unsafe: bool = False
    """Send again if a message was stored less safely than the broker is configured to."""
    avoids_slow: bool = False
    """Avoid brokers for a while after they were slow or failed."""
    asks_safety: bool = False
    """Ask the broker how safe each message is: `SendResult.durability` and `copies`. EscrowMQ's
    brokers answer this."""
    compression: str = "zlib"
    """`zlib`, `lz4`, `zstd`, or empty for no compression."""
    compression_over_size: int = 4_096
    compression_level: int = 5
    body_size_max: int = 4 * 1024 * 1024
    inflight_max: int = 10_000
    """Limit of messages in flight; further sends wait."""
    inflight_size_max: int = 100 * 1024 * 1024
    """Limit of the bytes of bodies in flight; further sends wait."""
    topics: Sequence[str] = ()
    """Topics of future transactions: their brokers can send checks from the start."""
    check: Check | None = None
    """The function that answers check-backs; a plain function or a coroutine function."""
    checkers: Mapping[str, Check] = {}
    """Checks by topic, or by the handler name given to a transaction (`checker=`)."""
    listener: Listener | None = None
    """The object for `send_in_transaction`; its `check` answers check-backs."""
    checks_running_max: int = 1
    """Limit of checks that run at the same time."""
    checks_held_max: int = 2_000
    """Limit of waiting checks; further ones are dropped, and the broker asks again."""
    check_timeout_ms: int = 60_000
    """A check that runs longer is answered with UNKNOWN and abandoned."""
    accepts_unsafe_halves: bool = False
    """Whether to continue a transaction if its half is stored less safely than required."""
    confirms_commits: bool = True
    """Wait until the broker has confirmed a commit, and raise OutcomeUnknown if it does not.
    Otherwise commits are sent in the background, as RocketMQ's own clients do, and errors are only
    logged."""
    interceptors: Sequence[Interceptor] = ()
    """For tracing and metrics."""
    trace: bool | str = False
    """Write RocketMQ's message trace: True to RMQ_SYS_TRACE_TOPIC, a text to the topic of this
    name."""

    def __post_init__(self) -> None:
        for name in ("timeout_ms", "batch_size", "inflight_max", "inflight_size_max",
                     "body_size_max", "checks_running_max", "checks_held_max",
                     "check_timeout_ms"):  # fmt: skip
            value: object = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise UsageError(f"{name}={value!r}; a whole number from 1 on is expected")
        for name in ("retries", "linger_ms"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 0:
                raise UsageError(f"{name}={value!r}; a whole number from 0 on is expected")
        if self.linger_ms >= self.timeout_ms:
            raise UsageError(
                f"linger_ms={self.linger_ms}: less than timeout_ms={self.timeout_ms} is "
                "expected, because the timeout would end before anything is sent"
            )
        if self.compression and self.compression not in FORMS:
            known = ", ".join(sorted(FORMS))
            raise UsageError(f"compression={self.compression!r}; one of {known} or '' is expected")
        if isinstance(self.topics, str):
            raise UsageError(f"topics={self.topics!r}; a list of names is expected")
        for topic in self.topics:
            check_topic(topic)
        self._check_functions()

    def _check_functions(self) -> None:
        """Raise UsageError for a check that would fail each time a broker asks."""
        given: dict[str, object] = {"check": self.check}
        checkers: object = self.checkers
        if not isinstance(checkers, Mapping):
            raise UsageError(f"checkers={checkers!r}; a dict of names and checks is expected")
        given |= {f"checkers[{name!r}]": check for name, check in checkers.items()}
        if self.listener is not None:
            given["listener.check"] = getattr(self.listener, "check", self.listener)
        for name, check in given.items():
            if check is None:
                continue
            if not callable(check) or has_yield(check) or not takes_one_argument(check):
                raise UsageError(
                    f"{name}={check!r}; a function that takes a message and returns its outcome "
                    "is expected"
                )

    @property
    def has_checks(self) -> bool:
        """Whether the producer answers check-backs."""
        return bool(self.check or self.checkers or self.listener)


def split_producer_settings(
    settings: Mapping[str, Any],
) -> tuple[ProducerOptions, dict[str, object]]:
    """Split settings into the producer's own and those of its connections. Raises UsageError for
    unknown ones."""
    own = {name: settings[name] for name in settings if name in ProducerOptions.__struct_fields__}
    rest = {name: settings[name] for name in settings if name not in own}
    unknown = [name for name in rest if name not in ClientOptions.__struct_fields__]
    if unknown:
        known = [*ProducerOptions.__struct_fields__, *ClientOptions.__struct_fields__[1:]]
        raise unknown_setting_error(unknown, known, of="a producer")
    return ProducerOptions(**own), rest


def make_message(topic: str | Message, body: bytes, fields: MessageFields) -> Message:
    """Return the message that a call's arguments describe: a given message, or a new one with this
    topic, body and fields. Raises UsageError for a message together with a body or fields."""
    if not isinstance(topic, Message):
        return Message(topic, body, **fields)
    if body or fields:
        raise UsageError("a Message was given together with fields of one; give either one")
    return topic
