"""An authority in memory, with the faults of real ones. The same calls have the same outcome each
time; nothing in it waits.

`read_now` and `write_now` are for a simulator, which decides itself when a request arrives and when
its answer does; the rest is the interface of `base.authority.Authority` over them."""

from __future__ import annotations

import hashlib

from escrowmq.base.authority import ABSENT, Versioned
from escrowmq.errors import AuthorityUnfit, AuthorityUnreachable


class MemoryAuthority:
    """Records in memory, changed by compare-and-swap."""

    def __init__(self, name: str = "memory") -> None:
        self.name = name
        self.is_reachable = True
        """False: no call has an effect."""
        self.answers_to_lose = 0
        """The number of writes, from the next one on, that take effect without an answer."""
        self.ignores_conditions = False
        """Write whatever the revision is, as some S3 servers do."""
        self.reads_count = 0
        self.writes_count = 0
        self.history: list[tuple[str, Versioned]] = []
        """Each record that was ever in force, in order, with its key."""
        self._records: dict[str, Versioned] = {}
        self._writes_kept = 0

    def read_now(self, key: str) -> Versioned:
        """The record of a key, whatever is reachable."""
        self.reads_count += 1
        return self._records.get(key, ABSENT)

    def write_now(self, key: str, value: bytes, revision: str) -> Versioned | None:
        """Compare and swap, whatever is reachable; None if the key has another revision."""
        self.writes_count += 1
        found = self._records.get(key, ABSENT)
        if found.revision != revision and not self.ignores_conditions:
            return None
        return self.put(key, value)

    def put(self, key: str, value: bytes) -> Versioned:
        """Write without comparing, as a person with a tool does."""
        self._writes_kept += 1
        digest = hashlib.sha256(value).hexdigest()[:16]
        record = Versioned(value, f"{self._writes_kept}-{digest}")
        self._records[key] = record
        self.history.append((key, record))
        return record

    def delete(self, key: str) -> None:
        """Delete a record by hand; nothing if there is none."""
        if self._records.pop(key, None) is not None:
            self.history.append((key, ABSENT))

    def backup(self) -> MemoryAuthority:
        """A copy of the present records, for `restore`."""
        copy = MemoryAuthority(self.name)
        copy._records, copy._writes_kept = dict(self._records), self._writes_kept
        return copy

    def restore(self, backup: MemoryAuthority) -> None:
        """Forget all writes since a back-up. Numbers of revisions are given a second time, as etcd
        does after that."""
        self._records, self._writes_kept = dict(backup._records), backup._writes_kept
        self.history += list(self._records.items())

    async def read(self, key: str) -> Versioned:
        """Return the record of a key. Raises AuthorityUnreachable when it is."""
        self._reach("a read")
        return self.read_now(key)

    async def write_if(self, key: str, value: bytes, revision: str) -> Versioned | None:
        """Compare and swap. Raises AuthorityUnreachable when it is, or when the answer is lost."""
        self._reach("a write")
        written = self.write_now(key, value, revision)
        if self.answers_to_lose > 0:
            self.answers_to_lose -= 1
            raise AuthorityUnreachable(f"{self.name}: the answer to a write was lost")
        return written

    async def prove(self) -> None:
        """Raise AuthorityUnfit if it ignores conditions."""
        self._reach("a write")
        if self.ignores_conditions:
            raise AuthorityUnfit(f"{self.name}: both of two conditional writes succeeded")

    async def close(self) -> None:
        """Nothing to release."""

    def _reach(self, what: str) -> None:
        if not self.is_reachable:
            raise AuthorityUnreachable(f"{self.name}: no connection for {what}")
