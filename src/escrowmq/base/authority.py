"""The interface to the engine that decides which broker is master: one record for each broker
name, changed only by compare-and-swap.

We write no consensus. An engine that others keep (etcd, an S3 bucket, Kubernetes) stores the
record, and a group of brokers obeys it. Nothing here depends on time: no lease, no expiry.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class VersionedRecord(msgspec.Struct, frozen=True):
    """A record, and its revision, as an authority returned it."""

    value: bytes
    """The record's content; empty if there is no such key."""
    revision: str
    """A text that changes with each write; empty if there is no such key. Compare it only for
    equality. Two values never have the same revision, even after the engine was restored from a
    back-up."""


ABSENT = VersionedRecord(b"", "")
"""The result of reading a key without a record."""


class Authority(Protocol):
    """An engine that stores records and compares before it writes.

    Every value must differ from all values written to the same key before, for example by a random
    number in it. When the answer to a write is lost, the value that is read back then proves
    whether the write took effect.
    """

    @property
    def name(self) -> str:
        """The engine and its address, for people: "etcd at 127.0.0.1:2379"."""

    async def read(self, key: str) -> VersionedRecord:
        """Return the newest record of a key, `ABSENT` if there is none. No read is older than a
        write that was answered before. Raises AuthorityUnreachable."""

    async def write_if(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its key still has this revision (empty: if the key does not exist).
        Return the new version. Return None if the key had another revision, so that nothing was
        written, or if the write took effect and others have overwritten it since.

        After AuthorityUnreachable the outcome is unknown: the write may have taken effect, or may
        take effect later. A read only shows the former.
        """

    async def require_fit(self) -> None:
        """Raise AuthorityUnfit unless the engine compares: of two conditional writes to a scratch
        key, exactly one must succeed. Raises AuthorityUnreachable if it does not answer."""

    async def close(self) -> None:
        """Close connections. Calls in progress end with AuthorityUnreachable."""
