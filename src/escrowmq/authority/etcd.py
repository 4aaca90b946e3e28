"""An engine that uses etcd 3.4 and later, over the JSON gateway that every etcd server has.

Reads are linearizable, so a member that is cut off from the others answers none. Writes are
transactions: they compare the key's mod_revision and its value, since an etcd that was restored
from a back-up counts the same revisions again. Neither leases nor watches are used."""

from __future__ import annotations

import base64
import ssl
from typing import Any, Final, TypeVar

import msgspec

from escrowmq.authority.engine import engine_count, make_revision
from escrowmq.authority.http import ServerAddress, ServerAnswer, ServerRequest, exchange
from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnreachable, RemoteProtocolError

T = TypeVar("T")

PORT: Final = 2379
_SEEN_MAX: Final = 64
_OK: Final = 200
_TOKEN_STATUSES: Final = (401,)
_REFUSING_STATUSES: Final = (400, 401, 403, 404, 412, 501)
_AUTH_CHANGED: Final = "revision of auth store is old"
_TEXT_MAX: Final = 200


class _Header(msgspec.Struct):
    revision: str = "0"


class _KeyValue(msgspec.Struct):
    mod_revision: str
    value: str = ""
    """The value; absent if it is empty."""


class _RangeResponse(msgspec.Struct):
    kvs: list[_KeyValue] = []


class _TxnResponse(msgspec.Struct):
    header: _Header
    succeeded: bool = False


class _TokenResponse(msgspec.Struct):
    token: str = ""


class _ErrorResponse(msgspec.Struct):
    error: str = ""
    message: str = ""


class EtcdEngine:
    """Keeps each record as a key of etcd. If there are several servers, it uses one until that
    fails, then the next."""

    def __init__(
        self,
        hosts: list[ServerAddress],
        prefix: str,
        *,
        timeout_s: float,
        account: tuple[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        assert hosts
        self._hosts = hosts
        self._at = 0
        self._prefix = prefix
        self._timeout_s = timeout_s
        self._account = account
        self._token = ""
        self._tls = tls
        self._last_records: dict[str, VersionedRecord] = {}
        """The last record of each key that was read or written. A write compares its value, as well
        as its revision."""

    @property
    def name(self) -> str:
        """The engine and all its servers."""
        return f"etcd at {','.join(map(str, self._hosts))}"

    async def read_once(self, key: str) -> VersionedRecord:
        """Return the newest record of a key."""
        found = await self._call("kv/range", {"key": self._encode_key(key)}, _RangeResponse)
        if not found.kvs:
            return ABSENT
        record = found.kvs[0]
        value = self._decode_value(record.value)
        return self._remember(
            key, VersionedRecord(value, make_revision(record.mod_revision, value))
        )

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        """Write a record if its revision is still the same; return None if not."""
        former = self._last_records.get(key, ABSENT)
        if revision and former.revision != revision:
            former = await self.read_once(key)
            if former.revision != revision:
                return None
        wanted = self._encode_key(key)
        put = {"request_put": {"key": wanted, "value": _base64(value)}}
        compared = _compare_absent(wanted) if not revision else _compare_same(wanted, former)
        txn = await self._call("kv/txn", {"compare": compared, "success": [put]}, _TxnResponse)
        if not txn.succeeded:
            return None
        # A transaction with one put has one revision, which is now the key's.
        return self._remember(
            key, VersionedRecord(value, make_revision(txn.header.revision, value))
        )

    async def delete_once(self, key: str) -> None:
        """Delete a record."""
        self._last_records.pop(key, None)
        await self._call("kv/deleterange", {"key": self._encode_key(key)}, _RangeResponse)

    async def close(self) -> None:
        """Do nothing: no connection is kept."""

    def _encode_key(self, key: str) -> str:
        return _base64(f"{self._prefix}/{key}".encode())

    def _decode_value(self, value: str) -> bytes:
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise AuthorityUnreachable(
                f"{self.name}: {value[:_TEXT_MAX]!r} is not a valid value"
            ) from error

    def _remember(self, key: str, record: VersionedRecord) -> VersionedRecord:
        if len(self._last_records) >= _SEEN_MAX:
            self._last_records.clear()
        self._last_records[key] = record
        return record

    async def _call(self, call: str, body: dict[str, Any], kind: type[T]) -> T:
        if self._account is not None and not self._token:
            await self._authenticate(self._account)
        try:
            return await self._ask(call, body, kind)
        except _TokenRefused:
            # It is five minutes old, or the server forgot it; the next attempt gets a new one.
            self._token = ""
            raise

    async def _authenticate(self, account: tuple[str, str]) -> None:
        name, password = account
        found = await self._ask(
            "auth/authenticate", {"name": name, "password": password}, _TokenResponse
        )
        self._token = found.token

    async def _ask(self, call: str, body: dict[str, Any], kind: type[T]) -> T:
        host = self._hosts[self._at]
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = self._token
        request = ServerRequest("POST", f"/v3/{call}", headers, msgspec.json.encode(body))
        try:
            answer = await exchange(host, request, timeout_s=self._timeout_s, tls=self._tls)
            if answer.status != _OK:
                raise self._error_of(host, answer)
            return msgspec.json.decode(answer.body, type=kind)
        except TimeoutError as error:
            self._use_next_server()
            raise AuthorityUnreachable(
                f"etcd at {host}: no answer within {self._timeout_s:g} s"
            ) from error
        except (OSError, RemoteProtocolError, msgspec.DecodeError) as error:
            self._use_next_server()
            raise AuthorityUnreachable(f"etcd at {host}: {error}") from error

    def _error_of(self, host: ServerAddress, answer: ServerAnswer) -> AuthorityUnreachable:
        try:
            fault = msgspec.json.decode(answer.body, type=_ErrorResponse)
            said = (fault.message or fault.error)[:_TEXT_MAX]
        except msgspec.DecodeError:
            said = repr(answer.body[:_TEXT_MAX])
        text = f"etcd at {host}: {said} (HTTP status {answer.status})"
        if self._token and (answer.status in _TOKEN_STATUSES or _AUTH_CHANGED in said):
            return _TokenRefused(text)
        if answer.status in _REFUSING_STATUSES:
            return AuthorityRefused(text)
        self._use_next_server()
        return AuthorityUnreachable(text)

    def _use_next_server(self) -> None:
        self._at = (self._at + 1) % len(self._hosts)


class _TokenRefused(AuthorityUnreachable):
    """Raised if the token is no longer valid."""


def _compare_absent(key: str) -> list[dict[str, str]]:
    return [{"key": key, "target": "MOD", "result": "EQUAL", "mod_revision": "0"}]


def _compare_same(key: str, former: VersionedRecord) -> list[dict[str, str]]:
    return [
        {
            "key": key,
            "target": "MOD",
            "result": "EQUAL",
            "mod_revision": engine_count(former.revision),
        },
        {"key": key, "target": "VALUE", "result": "EQUAL", "value": _base64(former.value)},
    ]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
