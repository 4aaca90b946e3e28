"""The interface of engines, in which each call is one attempt; and the revisions of records."""

from __future__ import annotations

import hashlib
from typing import Final, Protocol

from escrowmq.base.authority import VersionedRecord

_DIGEST_LENGTH: Final = 16

VALUE_SIZE_MAX: Final = 64 << 10
"""Limit of a record's bytes; etcd and Kubernetes accept 1 MiB, our records have less than one
KiB."""


class AuthorityEngine(Protocol):
    """An engine that stores records. Each call is one attempt, and ends within the engine's
    timeout. It raises AuthorityUnreachable if another attempt may succeed, AuthorityRefused if
    not."""

    @property
    def name(self) -> str:
        """The engine and its address, for people."""

    async def read_once(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its key still has this revision. Return the new version; None if the
        engine refused the write."""

    async def delete_once(self, key: str) -> None:
        """Delete a record; do nothing if there is none."""

    async def close(self) -> None:
        """Close connections."""


def make_revision(counted: str, value: bytes) -> str:
    """Return the revision of a record: the engine's own count, and a digest of the value. The
    digest is needed because an engine that was restored from a back-up counts the same numbers
    again, for other values."""
    return f"{counted}-{hashlib.sha256(value).hexdigest()[:_DIGEST_LENGTH]}"


def engine_count(revision: str) -> str:
    """Return the engine's own count from a revision that `make_revision` made."""
    return revision[: -_DIGEST_LENGTH - 1]
