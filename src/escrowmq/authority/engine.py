"""The interface of engines, where each call is one attempt; and revisions of records."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from escrowmq.base.authority import Versioned

_DIGEST_LENGTH: Final = 16

VALUE_SIZE_MAX: Final = 64 << 10
"""Of a record; etcd and Kubernetes take 1 MiB, ours has less than one KiB."""


class Engine(Protocol):
    """A kind of engine. Each call is one attempt, and ends within the engine's timeout. It raises
    AuthorityUnreachable if another attempt may help, AuthorityRefused if not."""

    @property
    def name(self) -> str:
        """The engine and its address, for people."""

    async def read_once(self, key: str) -> Versioned:
        """Return the newest record of a key."""

    async def write_once(self, key: str, value: bytes, revision: str) -> Versioned | None:
        """Write if the revision is still the same; None if not."""

    async def delete_once(self, key: str) -> None:
        """Delete a record; nothing if there is none."""

    async def close(self) -> None:
        """Release what it holds."""


def revision_of(counted: str, value: bytes) -> str:
    """The revision of a record: what the engine counts, and a digest of the value. An engine that
    was restored from a back-up counts the same numbers again, for other values."""
    return f"{counted}-{hashlib.sha256(value).hexdigest()[:_DIGEST_LENGTH]}"


def counted_in(revision: str) -> str:
    """The engine's own count in a revision; the inverse of `revision_of`."""
    return revision[: -_DIGEST_LENGTH - 1]
