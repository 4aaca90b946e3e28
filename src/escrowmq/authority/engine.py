"""The interface of engines, in which each call is one attempt; and the revisions of records."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from escrowmq.base.authority import VersionedRecord

_DIGEST_LENGTH: Final = 16

VALUE_SIZE_MAX: Final = 64 << 10
"""Limit of a record's bytes; etcd and Kubernetes accept 1 MiB, our records have less than one
KiB."""


class Engine(Protocol):
    """A kind of engine. Each call is one attempt, and ends within the engine's timeout. It raises
    AuthorityUnreachable if another attempt may help, AuthorityRefused if not."""

    @property
    def name(self) -> str:
        """The engine and its address, for people."""

    async def read_once(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its revision is still the same; return None if not."""

    async def delete_once(self, key: str) -> None:
        """Delete a record; do nothing if there is none."""

    async def close(self) -> None:
        """Close connections."""


def revision_of(counted: str, value: bytes) -> str:
    """Make the revision of a record from the engine's own count and a digest of the value. An
    engine that was restored from a back-up counts the same numbers again, for other values."""
    return f"{counted}-{hashlib.sha256(value).hexdigest()[:_DIGEST_LENGTH]}"


def counted_in(revision: str) -> str:
    """Return the engine's own count from a revision; the inverse of `revision_of`."""
    return revision[: -_DIGEST_LENGTH - 1]
