"""Rate limits for each address and each account, as token buckets."""

from __future__ import annotations

import msgspec

from escrowmq.base.answer import Refusal
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import RATED_CLIENTS_MAX
from escrowmq.broker.incoming_request import Question


class RateLimit(msgspec.Struct, frozen=True):
    """A rate limit: requests and bytes a second (0: no limit), and the names of the two
    settings."""

    requests: int
    size: int
    requests_name: str
    size_name: str


class _TokenBucket(msgspec.Struct):
    requests: float
    size: float
    at_ms: int


class TokenBuckets:
    """Token buckets, one for each sender; each holds the tokens of one second."""

    def __init__(self) -> None:
        self._buckets: dict[str, _TokenBucket] = {}
        """By sender, the least recently used first."""

    def count_request(self, sender: str, request: Question, rate: RateLimit) -> str:
        """Count a request of a sender. Return the setting that it exceeds, else an empty text."""
        size, is_free = len(request.body), request.row.is_free
        return self.count_size(sender, size, rate, request.now_ms, is_free=is_free)

    def count_size(
        self, sender: str, size: int, rate: RateLimit, now_ms: int, *, is_free: bool = False
    ) -> str:
        """Count a request with a body of this size. Return the setting that it exceeds, else an
        empty text."""
        bucket = self._refilled_bucket(sender, rate, now_ms)
        if not is_free:
            if rate.requests and bucket.requests < 1:
                return f"{rate.requests_name}={rate.requests}"
            # A body may exceed the tokens of a second: it is admitted, and later ones wait longer.
            if rate.size and bucket.size <= 0:
                return f"{rate.size_name}={rate.size}"
        # Free requests count and are never refused. Their debt is bounded: otherwise the client's
        # other requests would be refused long after the free ones have ended.
        bucket.requests = max(bucket.requests - 1, -rate.requests)
        if is_free and bucket.size - size < -rate.size:
            bucket.size = min(bucket.size, -rate.size)
        else:
            bucket.size -= size
        return ""

    def uncount(self, sender: str, size: int) -> None:
        """Subtract a request that was not served; the access check will count it again."""
        bucket = self._buckets.get(sender)
        if bucket is not None:
            bucket.requests += 1
            bucket.size += size

    def _refilled_bucket(self, sender: str, rate: RateLimit, now_ms: int) -> _TokenBucket:
        bucket = self._buckets.pop(sender, None)
        if bucket is None:
            if len(self._buckets) >= RATED_CLIENTS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = _TokenBucket(rate.requests, rate.size, now_ms)
        self._buckets[sender] = bucket
        passed_s = (now_ms - bucket.at_ms) / 1_000
        bucket.at_ms = now_ms
        bucket.requests = min(rate.requests, bucket.requests + passed_s * rate.requests)
        bucket.size = min(rate.size, bucket.size + passed_s * rate.size)
        if not rate.size:  # no debt, in case a limit is set later
            bucket.size = 0
        return bucket


class AddressRates:
    """Rate limits on requests and bytes a second of each address."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._buckets = TokenBuckets()
        self.refused_count = 0

    @property
    def has_limit(self) -> bool:
        """Whether there is any limit."""
        return bool(self._settings.requests_per_s or self._settings.bytes_per_s)

    def judge(self, request: Question, *, account: str = "") -> Refusal | None:
        """Count a request of an address. Return the refusal if it exceeds the rate. A proved
        account at an address has a rate of its own, so that other clients at the address cannot use
        it up."""
        host = request.peer.host
        settings = self._settings
        rate = RateLimit(
            settings.requests_per_s,
            settings.bytes_per_s,
            "escrowRequestsPerSecond",
            "escrowBytesPerSecond",
        )
        what = self._buckets.count_request(f"{account}@{host}", request, rate)
        if not what:
            return None
        self.refused_count += 1
        return flow_control_refusal(request, f"{host} asks for more than {what} allows")


def flow_control_refusal(request: Question, reason: str) -> Refusal:
    """Return RocketMQ's flow-control refusal: FLOW_CONTROL for requests that read, whose clients
    pause briefly and retry; SYSTEM_BUSY for all others."""
    return Refusal(
        Response.FLOW_CONTROL if request.row.is_read else Response.SYSTEM_BUSY,
        f"[OVERLOAD]system busy, start flow control for a while: {reason}; send less, in batches, "
        "or have the limit raised",
    )
