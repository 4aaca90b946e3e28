"""An Authority on top of an engine. It retries failed attempts, resolves writes whose answer was
lost, and tests that the engine really compares.

An attempt to write that fails may have taken effect, or may take effect later. So the record is
read before another attempt. If the revision has changed, the value tells whose write it was,
because no two values are the same. If it has not, the write is attempted again. Should the earlier
attempt arrive in between, the engine refuses the later one, and the record is read once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from escrowmq.authority.engine import VALUE_SIZE_MAX, AuthorityEngine
from escrowmq.base.authority import VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnfit, AuthorityUnreachable, UsageError

T = TypeVar("T")

CALL_S: Final = 6.0
"""After this many seconds, no further attempt of a call begins."""
_FIRST_PAUSE_S: Final = 0.05
_PAUSE_MAX_S: Final = 0.4


class EngineAuthority:
    """Reads and conditional writes that survive failed attempts."""

    def __init__(self, engine: AuthorityEngine, *, call_s: float = CALL_S) -> None:
        self._engine = engine
        self._call_s = call_s

    @property
    def name(self) -> str:
        """The engine and its address."""
        return self._engine.name

    async def read(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""
        return await self._retry(lambda: self._engine.read_once(key))

    async def write_if(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its key still has this revision. Return the new version; None if
        another write came first."""
        if len(value) > VALUE_SIZE_MAX:
            raise UsageError(
                f"a record of {len(value)} bytes for {key}; at most {VALUE_SIZE_MAX} are allowed"
            )
        return await self._retry(_ResolvedWrite(self._engine, key, value, revision).attempt)

    async def require_fit(self) -> None:
        """Raise AuthorityUnfit unless exactly one of two simultaneous writes succeeds, both when
        they create a record and when they change one."""
        key = f"scratch/{secrets.token_hex(8)}"
        try:
            await self._test_comparison(key)
        finally:
            # If this fails, a record of a few bytes remains that is never read.
            with contextlib.suppress(AuthorityUnreachable):
                await self._engine.delete_once(key)

    async def close(self) -> None:
        """Close connections; no call may be in progress."""
        await self._engine.close()

    async def _test_comparison(self, key: str) -> None:
        created = await self._race_two_writes(key, "", "that create a record")
        changed = await self.write_if(key, _unique_value(), created.revision)
        if changed is None or await self.read(key) != changed:
            raise self._unfit_error("a read after a write returned another record")
        if await self.write_if(key, _unique_value(), created.revision) is not None:
            raise self._unfit_error("a write with an old revision succeeded")
        await self._race_two_writes(key, changed.revision, "that change a record")

    async def _race_two_writes(self, key: str, revision: str, what: str) -> VersionedRecord:
        writes = (self.write_if(key, _unique_value(), revision) for _ in range(2))
        written = [each for each in await asyncio.gather(*writes) if each is not None]
        if len(written) != 1:
            raise self._unfit_error(
                f"of two conditional writes {what}, {len(written)} succeeded at the same moment"
            )
        return written[0]

    def _unfit_error(self, seen: str) -> AuthorityUnfit:
        return AuthorityUnfit(
            f"{self.name}: {seen}; this engine cannot decide which broker is master, use another "
            "one, or a release of it that supports conditional writes"
        )

    async def _retry(self, attempt: Callable[[], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        end, pause = loop.time() + self._call_s, _FIRST_PAUSE_S
        while True:
            try:
                return await attempt()
            except AuthorityRefused:
                raise
            except AuthorityUnreachable:
                if loop.time() + pause >= end:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX_S)


class _ResolvedWrite:
    """One write, attempted until its outcome is known."""

    def __init__(self, engine: AuthorityEngine, key: str, value: bytes, revision: str) -> None:
        self._engine = engine
        self._key, self._value, self._revision = key, value, revision
        self._is_in_doubt = False
        """Whether an earlier attempt has failed, and may have taken effect."""

    async def attempt(self) -> VersionedRecord | None:
        if self._is_in_doubt:
            found = await self._engine.read_once(self._key)
            if found.revision != self._revision:
                return self._own_version(found)
        self._is_in_doubt = True
        written = await self._engine.write_once(self._key, self._value, self._revision)
        if written is None:
            # Refused because of another member's write, or because of our own: an earlier attempt
            # may have arrived late, or a proxy may have sent this one twice.
            found = await self._engine.read_once(self._key)
            if found.revision == self._revision:
                # S3 refuses a write while it serves another one, whether that succeeds or not.
                raise AuthorityUnreachable(
                    f"{self._engine.name} refused to change {self._key!r}, whose revision "
                    "has not changed"
                )
            return self._own_version(found)
        return written

    def _own_version(self, found: VersionedRecord) -> VersionedRecord | None:
        return found if found.revision and found.value == self._value else None


def _unique_value() -> bytes:
    return secrets.token_hex(16).encode()
