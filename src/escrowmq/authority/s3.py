"""An engine that uses objects of an S3 bucket, written with If-Match and If-None-Match. The ETag is
the revision.

obstore finds the credentials. Its blocking calls run in threads of ours. Its own asyncio calls are
not used: their threads touch Python objects after an answer, and a process that ended at that
moment was aborted (9 of 120, obstore 0.12.1).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import S3Store

from escrowmq.authority.engine import engine_count, make_revision
from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnfit, AuthorityUnreachable

if TYPE_CHECKING:
    from obstore.store import S3Config

T = TypeVar("T")

_THREADS_MAX: Final = 4
_REFUSALS: Final = (
    PermissionDeniedError, UnauthenticatedError, InvalidPathError, NotSupportedError,
)  # fmt: skip
_NO_BUCKET: Final = "<Code>NoSuchBucket</Code>"
_SAID: Final = re.compile(r"<Code>(.*?)</Code>.*?<Message>(.*?)</Message>", re.DOTALL)
_TEXT_MAX: Final = 200


class S3Engine:
    """Keeps each record as an object of a bucket."""

    def __init__(
        self, bucket: str, prefix: str, *, timeout_s: float, endpoint: str = "", region: str = ""
    ) -> None:
        config: S3Config = {"bucket": bucket, "disable_bulk_delete": True}
        if endpoint:
            config["endpoint"] = endpoint
        if region:
            config["region"] = region
        timeout = timedelta(seconds=timeout_s)
        self._store = S3Store(
            config=config,
            client_options={"allow_http": True, "timeout": timeout, "connect_timeout": timeout},
            # An attempt is one request; EngineAuthority decides what follows a failure.
            retry_config={"max_retries": 0},
        )
        self._where = f"bucket {bucket}" + (f" at {endpoint}" if endpoint else "")
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="authority")

    @property
    def name(self) -> str:
        """The engine and its bucket."""
        return f"S3 {self._where}"

    async def read_once(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""
        return await self._call(lambda: self._get(self._path(key)))

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its revision is still the same; return None if not."""
        return await self._call(lambda: self._put(self._path(key), value, revision))

    async def delete_once(self, key: str) -> None:
        """Delete a record."""
        await self._call(lambda: self._delete(self._path(key)))

    async def close(self) -> None:
        """Wait for requests in progress; each has a timeout."""
        await asyncio.to_thread(self._threads.shutdown)

    def _path(self, key: str) -> str:
        return f"{self._prefix}/{key}"

    def _get(self, path: str) -> VersionedRecord:
        try:
            found = obstore.get(self._store, path)
            value = bytes(found.bytes())
        except FileNotFoundError as error:
            if _NO_BUCKET in str(error):
                raise
            return ABSENT
        return VersionedRecord(value, make_revision(self._require_tag(found.meta["e_tag"]), value))

    def _put(self, path: str, value: bytes, revision: str) -> VersionedRecord | None:
        try:
            written = obstore.put(
                self._store,
                path,
                value,
                mode={"e_tag": engine_count(revision)} if revision else "create",
                use_multipart=False,
            )
        except (AlreadyExistsError, PreconditionError):
            # The latter also for status 404, with which AWS answers If-Match if there is no such
            # object.
            return None
        return VersionedRecord(value, make_revision(self._require_tag(written["e_tag"]), value))

    def _delete(self, path: str) -> None:
        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return

    def _require_tag(self, tag: str | None) -> str:
        if not tag:
            raise AuthorityUnfit(f"{self.name}: an object has no ETag, so it cannot be compared")
        return tag

    async def _call(self, call: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await loop.run_in_executor(self._threads, call)
        except TimeoutError as error:
            raise AuthorityUnreachable(
                f"{self.name}: no answer within {self._timeout_s:g} s"
            ) from error
        except (*_REFUSALS, FileNotFoundError) as error:
            raise AuthorityRefused(f"{self.name}: {_error_text(error)}") from error
        except (BaseError, OSError, ValueError) as error:
            raise AuthorityUnreachable(f"{self.name}: {_error_text(error)}") from error


def _error_text(error: Exception) -> str:
    """Return the server's message, or the first line of obstore's."""
    text = str(error)
    if (said := _SAID.search(text)) is not None:
        return f"{said[1]}: {said[2]}"[:_TEXT_MAX]
    return text.partition("\n")[0][:_TEXT_MAX]
