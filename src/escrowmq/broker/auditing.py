"""What operators did and who was refused, for the log `escrowmq.audit` (docs/security.md): one line
each, `event=operation` or `event=denial`, in the form of `codec/audit_line`."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.seldom import Seldom
from escrowmq.broker.state import Handler, Peer
from escrowmq.codec.audit_line import VALUE_SIZE_MAX, audit_line
from escrowmq.codec.command import decode_header
from escrowmq.codec.conf import ConfError, parse_conf
from escrowmq.codec.signature import ACCESS_KEY
from escrowmq.errors import EscrowMQError

_log = logging.getLogger("escrowmq.audit")

_FRONT_SIZE: Final = 8

_DENIALS_MAX: Final = 10
_DENIALS_SPAN_MS: Final = 60_000
_DENIED_MAX: Final = 10_000
"""Lines a minute about one account at one address, and how many of these are told apart."""

_DENIALS_MAX_ALL: Final = 600
"""Lines a minute about everybody: names are cheap to make up."""

_R: Final = Request

OPERATIONS: Final = frozenset(
    {
        _R.UPDATE_AND_CREATE_TOPIC, _R.UPDATE_AND_CREATE_TOPIC_LIST, _R.DELETE_TOPIC_IN_BROKER,
        _R.UPDATE_BROKER_CONFIG, _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
        _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, _R.DELETE_SUBSCRIPTIONGROUP,
        _R.UPDATE_AND_GET_GROUP_FORBIDDEN, _R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG,
        _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, _R.INVOKE_BROKER_TO_RESET_OFFSET,
        _R.CLONE_GROUP_OFFSET, _R.CLEAN_EXPIRED_CONSUMEQUEUE, _R.CLEAN_UNUSED_TOPIC,
        _R.DELETE_EXPIRED_COMMITLOG, _R.RESUME_CHECK_HALF_MESSAGE, _R.CONSUME_MESSAGE_DIRECTLY,
        _R.SET_MESSAGE_REQUEST_MODE, _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _R.SET_COMMITLOG_READ_MODE,
        _R.EXPORT_ROCKSDB_CONFIG_TO_JSON, _R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER,
        _R.AUTH_DELETE_USER, _R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL, _R.AUTH_DELETE_ACL,
    }
)  # fmt: skip
"""Requests of operators that change something; those about transactions write their own lines."""

_TARGETS: Final = (
    "topic", "group", "groupName", "consumerGroup", "srcGroup", "destGroup", "queueId",
    "timestamp", "offset", "readable", "username", "subject", "policyType", "resource",
    "accessKey", "admin", "topicPerms", "groupPerms", "globalWhiteAddrs", "aclFileFullPath",
    "msgId", "clientId",
)  # fmt: skip
"""Fields that say what was changed. A secret is in none of them."""

_NAMES: Final = {code: name for name, code in vars(Request).items() if name.isupper()}


def write(event: str, peer: Peer, request: Command, **more: object) -> None:
    """One line about a request."""
    fields = {
        "peer": peer.address,
        "account": (request.ext or {}).get(ACCESS_KEY, ""),
        "request": _NAMES.get(request.code, request.code),
        "code": request.code,
        **more,
    }
    _write(event, fields)


def _write(event: str, fields: dict[str, object]) -> None:
    _log.info("%s", audit_line(event, fields))


def audited(handler: Handler) -> Handler:
    """The same, with a line about what came of each request."""

    def serve(peer: Peer, request: Command, now_ms: int) -> bytes | None:
        try:
            reply = handler(peer, request, now_ms)
        except EscrowMQError as error:
            _note_operation(peer, request, code=1, remark=str(error))
            raise
        code, remark = (0, "") if reply is None else _outcome(reply)
        _note_operation(peer, request, code=code, remark=remark)
        return reply

    return serve


def _outcome(reply: bytes) -> tuple[int, str]:
    size = int.from_bytes(reply[5:_FRONT_SIZE], "big")
    header = decode_header(reply[_FRONT_SIZE : _FRONT_SIZE + size], reply[4])
    return header.code, header.remark or ""


def _note_operation(peer: Peer, request: Command, *, code: int, remark: str) -> None:
    ext = request.ext or {}
    more: dict[str, object] = {name: ext[name] for name in _TARGETS if name in ext}
    if request.code == Request.UPDATE_BROKER_CONFIG:
        more["settings"] = _settings(request)
    elif request.body and request.code not in (_R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER):
        more["body"] = request.body.decode("utf-8", "replace")
    more["result"] = code
    if code:
        more["reason"] = remark
    write("operation", peer, request, **more)


def _settings(request: Command) -> str:
    """What was to be changed: names alone, since a mistaken one may have a secret behind it."""
    try:
        return ",".join(sorted(parse_conf(request.body.decode("utf-8", "replace"))))
    except ConfError:
        return "unreadable"


class Denials:
    """Writes down who was refused; of one account at one address not more than some a minute, and
    then how many there were besides."""

    def __init__(self) -> None:
        self._seldom = Seldom(
            lines_max=_DENIALS_MAX, span_ms=_DENIALS_SPAN_MS, kinds_max=_DENIED_MAX
        )
        self._everybody = Seldom(lines_max=_DENIALS_MAX_ALL, span_ms=_DENIALS_SPAN_MS, kinds_max=1)
        self.count = 0

    def note(self, peer: Peer, request: Command, reason: str, now_ms: int) -> None:
        """A request was refused."""
        self.count += 1
        account = (request.ext or {}).get(ACCESS_KEY, "")[:VALUE_SIZE_MAX]
        host = peer.address.rpartition(":")[0]
        if self._seldom.says(f"{account}@{host}", now_ms) and self._everybody.says("", now_ms):
            write("denial", peer, request, reason=reason)

    def wake(self, now_ms: int) -> None:
        """Tell how many were left out."""
        for who, count in self._seldom.take_left_out(now_ms):
            account, _, host = who.rpartition("@")
            _write("denials", {"peer": host, "account": account, "count": count})
        for _, count in self._everybody.take_left_out(now_ms):
            _write("denials", {"peer": "everybody", "account": "", "count": count})

    def wake_at_ms(self) -> int | None:
        """When there may be something to tell."""
        found = [at for at in (self._seldom.wake_at_ms(), self._everybody.wake_at_ms()) if at]
        return min(found, default=None)
