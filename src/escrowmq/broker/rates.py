"""How much one address, and one account, may ask: buckets that fill with the clock."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import RATED_CLIENTS_MAX
from escrowmq.base.settings import BrokerSettings

_FLOW_CONTROL: Final = 215

READS: Final = frozenset(
    {
        Request.PULL_MESSAGE, Request.LITE_PULL_MESSAGE, Request.POP_MESSAGE,
        Request.PEEK_MESSAGE, Request.NOTIFICATION,
    }
)  # fmt: skip
"""Readers know FLOW_CONTROL: they rest a little and ask again. All others know SYSTEM_BUSY."""

_FREE: Final = frozenset(
    {
        Request.END_TRANSACTION, Request.HEART_BEAT, Request.UNREGISTER_CLIENT,
        Request.UPDATE_CONSUMER_OFFSET, Request.ACK_MESSAGE, Request.BATCH_ACK_MESSAGE,
        Request.UNLOCK_BATCH_MQ,
    }
)  # fmt: skip
"""What ends something is never refused: it would cost more when it comes again. It counts."""


class Rate(msgspec.Struct, frozen=True):
    """Requests and bytes a second, 0 for any number, and the settings that say so."""

    requests: int
    size: int
    requests_name: str
    size_name: str


class _Bucket(msgspec.Struct):
    requests: float
    size: float
    at_ms: int


class Buckets:
    """Of each who asks, a second's worth at once."""

    def __init__(self) -> None:
        self._buckets: dict[str, _Bucket] = {}
        """Least lately used first."""

    def take(self, who: str, request: Command, rate: Rate, now_ms: int) -> str:
        """Count a request; the setting by which it is one too many, or nothing."""
        bucket = self._filled(who, rate, now_ms)
        if request.code not in _FREE:
            if rate.requests and bucket.requests < 1:
                return f"{rate.requests_name}={rate.requests}"
            # A body may be larger than a second's worth: it is let in, and then paid for.
            if rate.size and bucket.size <= 0:
                return f"{rate.size_name}={rate.size}"
        bucket.requests = max(bucket.requests - 1, -rate.requests)
        bucket.size -= len(request.body)
        return ""

    def _filled(self, who: str, rate: Rate, now_ms: int) -> _Bucket:
        bucket = self._buckets.pop(who, None)
        if bucket is None:
            if len(self._buckets) >= RATED_CLIENTS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = _Bucket(rate.requests, rate.size, now_ms)
        self._buckets[who] = bucket
        passed_s = (now_ms - bucket.at_ms) / 1_000
        bucket.at_ms = now_ms
        bucket.requests = min(rate.requests, bucket.requests + passed_s * rate.requests)
        bucket.size = min(rate.size, bucket.size + passed_s * rate.size)
        return bucket


class Refused(msgspec.Struct, frozen=True):
    """A request too many: code and remark of the answer."""

    code: int
    remark: str


class Rates:
    """Requests and bytes a second of each address."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._buckets = Buckets()
        self.refused_count = 0

    @property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return bool(self._settings.requests_per_s or self._settings.bytes_per_s)

    def judge(
        self, host: str, request: Command, now_ms: int, *, account: str = ""
    ) -> Refused | None:
        """Count a request of an address; why it is one too many, or None. Those of an account that
        was proved count apart: a stranger beside it uses up nothing of it."""
        settings = self._settings
        rate = Rate(
            settings.requests_per_s,
            settings.bytes_per_s,
            "escrowRequestsPerSecond",
            "escrowBytesPerSecond",
        )
        what = self._buckets.take(f"{account}@{host}", request, rate, now_ms)
        if not what:
            return None
        self.refused_count += 1
        return too_many(request, f"{host} asks for more than {what} allows")


def too_many(request: Command, reason: str) -> Refused:
    """The refusal of a request by the words of RocketMQ's flow control."""
    return Refused(
        _FLOW_CONTROL if request.code in READS else Response.SYSTEM_BUSY,
        f"[OVERLOAD]system busy, start flow control for a while: {reason}; send less, in batches, "
        "or have the limit raised",
    )
