"""How much one address may ask: buckets that fill with the clock."""

from __future__ import annotations

from typing import Final

import msgspec

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.base.limits import RATED_CLIENTS_MAX
from escrowmq.base.settings import BrokerSettings

_FLOW_CONTROL: Final = 215

_READS: Final = frozenset(
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


class _Bucket(msgspec.Struct):
    requests: float
    size: float
    at_ms: int


class Refused(msgspec.Struct, frozen=True):
    """A request too many: code and remark of the answer."""

    code: int
    remark: str


class Rates:
    """Requests and bytes a second of each address, a second's worth at once."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._buckets: dict[str, _Bucket] = {}
        """Least lately used first."""
        self.refused_count = 0

    @property
    def is_on(self) -> bool:
        """Whether there is any limit."""
        return bool(self._settings.requests_per_s or self._settings.bytes_per_s)

    def judge(self, host: str, request: Command, now_ms: int) -> Refused | None:
        """Count a request of an address; why it is one too many, or None."""
        settings = self._settings
        bucket = self._filled(host, now_ms)
        what = ""
        if request.code not in _FREE:
            if settings.requests_per_s and bucket.requests < 1:
                what = f"escrowRequestsPerSecond={settings.requests_per_s}"
            # A body may be larger than a second's worth: it is let in, and then paid for.
            elif settings.bytes_per_s and bucket.size <= 0:
                what = f"escrowBytesPerSecond={settings.bytes_per_s}"
        if not what:
            bucket.requests = max(bucket.requests - 1, -settings.requests_per_s)
            bucket.size -= len(request.body)
            return None
        self.refused_count += 1
        return Refused(
            _FLOW_CONTROL if request.code in _READS else Response.SYSTEM_BUSY,
            f"[OVERLOAD]system busy, start flow control for a while: {host} asks for more than "
            f"{what} allows; send less, in batches, or have the limit raised",
        )

    def _filled(self, host: str, now_ms: int) -> _Bucket:
        settings = self._settings
        bucket = self._buckets.pop(host, None)
        if bucket is None:
            if len(self._buckets) >= RATED_CLIENTS_MAX:
                del self._buckets[next(iter(self._buckets))]
            bucket = _Bucket(settings.requests_per_s, settings.bytes_per_s, now_ms)
        self._buckets[host] = bucket
        passed_s = (now_ms - bucket.at_ms) / 1_000
        bucket.at_ms = now_ms
        bucket.requests = min(
            settings.requests_per_s, bucket.requests + passed_s * settings.requests_per_s
        )
        bucket.size = min(settings.bytes_per_s, bucket.size + passed_s * settings.bytes_per_s)
        return bucket
