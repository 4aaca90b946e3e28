"""An engine that uses Kubernetes objects: each record is a ConfigMap, compared by its
resourceVersion. It is not a Lease, because nothing here expires. Requests go to the API server with
the account of the pod."""

from __future__ import annotations

import base64
import hashlib
import re
import ssl
from pathlib import Path
from typing import Any, Final

import msgspec

from escrowmq.authority.engine import engine_count, make_revision
from escrowmq.authority.http import ServerAddress, ServerAnswer, ServerRequest, exchange
from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnreachable, RemoteProtocolError

FIELD: Final = "record"
_OK: Final = (200, 201)
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_REFUSING_STATUSES: Final = (400, 401, 403, 404, 405, 409, 415, 422)
_NOT_IN_NAMES: Final = re.compile("[^a-z0-9]+")
_READABLE_MAX: Final = 60
_TEXT_MAX: Final = 200


class _Metadata(msgspec.Struct, rename="camel"):
    resource_version: str


class _ConfigMap(msgspec.Struct, rename="camel"):
    metadata: _Metadata
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""


class KubernetesEngine:
    """Keeps each record as a ConfigMap in one Kubernetes namespace."""

    def __init__(
        self,
        host: ServerAddress,
        namespace: str,
        prefix: str,
        *,
        token_file: Path,
        tls: ssl.SSLContext,
        timeout_s: float,
    ) -> None:
        self._host = host
        self._namespace = namespace
        self._prefix = prefix
        self._token_file = token_file
        self._tls = tls
        self._timeout_s = timeout_s
        self._folder = f"/api/v1/namespaces/{namespace}/configmaps"

    @property
    def name(self) -> str:
        """The engine, its API server and the namespace."""
        return f"Kubernetes at {self._host}, namespace {self._namespace}"

    async def read_once(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""
        answer = await self._ask("GET", f"{self._folder}/{self.object_name(key)}")
        if answer.status == _NOT_FOUND:
            return ABSENT
        return self._record_in(answer)

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its revision is still the same; return None if not."""
        metadata = {"name": self.object_name(key), "annotations": {"escrowmq/key": key}}
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": metadata,
            **_value_fields(value),
        }
        if not revision:
            answer = await self._ask("POST", self._folder, body)
            return None if answer.status == _CONFLICT else self._record_in(answer)
        # An API server whose etcd was restored counts the same versions again. Only a read can show
        # that. It need not be atomic with the write: a version that is read now belongs to its
        # value.
        if (await self.read_once(key)).revision != revision:
            return None
        metadata["resourceVersion"] = engine_count(revision)
        assert metadata["resourceVersion"], "without it the API server would not compare"
        answer = await self._ask("PUT", f"{self._folder}/{metadata['name']}", body)
        return None if answer.status in (_CONFLICT, _NOT_FOUND) else self._record_in(answer)

    async def delete_once(self, key: str) -> None:
        """Delete a record."""
        answer = await self._ask("DELETE", f"{self._folder}/{self.object_name(key)}")
        if answer.status not in (*_OK, _NOT_FOUND):
            raise self._error_of(answer)

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    def object_name(self, key: str) -> str:
        """Return the name of a key's ConfigMap. Kubernetes allows only lower case. So the name
        contains a digest, which distinguishes keys that differ only in case."""
        readable = _NOT_IN_NAMES.sub("-", key.lower())[:_READABLE_MAX].strip("-")
        return f"{self._prefix}-{readable}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    def _record_in(self, answer: ServerAnswer) -> VersionedRecord:
        if answer.status not in _OK:
            raise self._error_of(answer)
        try:
            found = msgspec.json.decode(answer.body, type=_ConfigMap)
            value = (found.data or {}).get(FIELD, "").encode()
            if not value:
                value = base64.b64decode((found.binary_data or {}).get(FIELD, ""), validate=True)
        except (msgspec.DecodeError, ValueError) as error:
            raise AuthorityUnreachable(
                f"{self.name}: no ConfigMap in an answer: {error}"
            ) from error
        return VersionedRecord(value, make_revision(found.metadata.resource_version, value))

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None
    ) -> ServerAnswer:
        try:
            # Kubernetes replaces the file about once an hour.
            token = self._token_file.read_text(encoding="ascii").strip()
        except (OSError, ValueError) as error:
            raise AuthorityRefused(f"{self.name}: token {self._token_file}: {error}") from error
        headers = {"Accept": "application/json", "Authorization": f"Bearer {token}"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        data = b"" if body is None else msgspec.json.encode(body)
        request = ServerRequest(method, path, headers, data)
        try:
            return await exchange(self._host, request, timeout_s=self._timeout_s, tls=self._tls)
        except TimeoutError as error:
            raise AuthorityUnreachable(
                f"{self.name}: no answer within {self._timeout_s:g} s"
            ) from error
        except (OSError, RemoteProtocolError) as error:
            raise AuthorityUnreachable(f"{self.name}: {error}") from error

    def _error_of(self, answer: ServerAnswer) -> AuthorityUnreachable:
        try:
            status = msgspec.json.decode(answer.body, type=_Status)
            said = (status.message or status.reason)[:_TEXT_MAX]
        except msgspec.DecodeError:
            said = repr(answer.body[:_TEXT_MAX])
        kind = AuthorityRefused if answer.status in _REFUSING_STATUSES else AuthorityUnreachable
        return kind(f"{self.name}: {said} (HTTP status {answer.status})")


def _value_fields(value: bytes) -> dict[str, dict[str, str]]:
    """Return the fields of a ConfigMap for a value: as text if possible, so that people can read
    it, otherwise as binary data."""
    try:
        return {"data": {FIELD: value.decode()}}
    except UnicodeDecodeError:
        return {"binaryData": {FIELD: base64.b64encode(value).decode()}}
