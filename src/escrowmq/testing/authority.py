"""An authority in memory, with the faults of real ones.

It has no randomness and never waits. `read_now` and `write_now` are for a simulator, which itself
decides when a request arrives and when its answer does. The other methods are the interface
`base.authority.Authority`, built on these two."""

from __future__ import annotations

import hashlib

from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityUnfit, AuthorityUnreachable


class MemoryAuthority:
    """Records in memory, changed by compare-and-swap."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.is_reachable = True
        """Whether calls have an effect; if not, they raise AuthorityUnreachable."""
        self.answers_to_lose = 0
        """The number of next writes that take effect, but whose answer is lost."""
        self.ignores_conditions = False
        """Whether writes succeed whatever the expected revision is, as at some S3 servers."""
        self.reads_count = 0
        self.writes_count = 0
        self.history: list[tuple[str, VersionedRecord]] = []
        """Every record that was ever written, in order, with its key."""
        self._records: dict[str, VersionedRecord] = {}
        self._writes_kept = 0

    def read_now(self, key: str) -> VersionedRecord:
        """Return the record of a key, even if the authority is set unreachable."""
        self.reads_count += 1
        return self._records.get(key, ABSENT)

    def write_now(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Compare and swap, even if the authority is set unreachable; return None if the key has
        another revision."""
        self.writes_count += 1
        found = self._records.get(key, ABSENT)
        if found.revision != revision and not self.ignores_conditions:
            return None
        return self.put(key, value)

    def put(self, key: str, value: bytes) -> VersionedRecord:
        """Write a record unconditionally, as a person does with a tool."""
        self._writes_kept += 1
        digest = hashlib.sha256(value).hexdigest()[:16]
        record = VersionedRecord(value, f"{self._writes_kept}-{digest}")
        self._records[key] = record
        self.history.append((key, record))
        return record

    def delete(self, key: str) -> None:
        """Delete a record by hand; do nothing if there is none."""
        if self._records.pop(key, None) is not None:
            self.history.append((key, ABSENT))

    def backup(self) -> MemoryAuthority:
        """Return a copy of the present records, for `restore`."""
        copy = MemoryAuthority(self.name)
        copy._records, copy._writes_kept = dict(self._records), self._writes_kept
        return copy

    def restore(self, backup: MemoryAuthority) -> None:
        """Forget all writes since a back-up. Revision numbers are then used a second time, as by
        etcd after a restore."""
        self._records, self._writes_kept = dict(backup._records), backup._writes_kept
        self.history += list(self._records.items())

    async def read(self, key: str) -> VersionedRecord:
        """Return the record of a key. Raises AuthorityUnreachable while `is_reachable` is False."""
        self._raise_if_unreachable("a read")
        return self.read_now(key)

    async def write_if(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Compare and swap. Raises AuthorityUnreachable while `is_reachable` is False, or if the
        answer is to be lost."""
        self._raise_if_unreachable("a write")
        written = self.write_now(key, value, revision)
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise AuthorityUnreachable(f"{self.name}: the answer to a write was lost")
        return written

    async def require_fit(self) -> None:
        """Raise AuthorityUnfit if the authority ignores conditions."""
        self._raise_if_unreachable("a write")
        if self.ignores_conditions:
            raise AuthorityUnfit(f"{self.name}: both of two conditional writes succeeded")

    async def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _raise_if_unreachable(self, what: str) -> None:
        if not self.is_reachable:
            raise AuthorityUnreachable(f"{self.name}: no connection for {what}")
