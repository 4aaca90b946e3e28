"""Connections to the Redis server of the sets and the lease."""

from __future__ import annotations

from typing import Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from escrowmq.errors import UsageError

TIMEOUT_S: Final = 30.0


def connect(server: str | redis.Redis) -> redis.Redis:
    """Make a client for an address. It never sends a request twice: a comparison that the server is
    still executing must not be started again."""
    if not isinstance(server, str):
        return server
    try:
        return redis.Redis.from_url(
            server,
            socket_timeout=TIMEOUT_S,
            socket_connect_timeout=TIMEOUT_S,
            retry=Retry(NoBackoff(), 0),
        )
    except ValueError as error:
        raise UsageError(f"{server!r} is not the address of a Redis server: {error}") from error
