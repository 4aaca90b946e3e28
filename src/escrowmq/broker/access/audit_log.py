"""Writes operators' operations and refused requests to the log `escrowmq.audit`
(docs/security.md): one line each, `event=operation` or `event=denial`, in the form of
`codec/key_value_line`."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.answer import HELD, Reply
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.log_throttle import LogThrottle
from escrowmq.broker.incoming_request import Question
from escrowmq.codec.java_properties import ConfError, parse_java_properties
from escrowmq.codec.key_value_line import VALUE_SIZE_MAX, format_audit_line
from escrowmq.codec.signature import ACCESS_KEY

_log = logging.getLogger("escrowmq.audit")

_DENIALS_MAX: Final = 10
_DENIALS_SPAN_MS: Final = 60_000
_DENIED_MAX: Final = 10_000
"""The most refusals a minute that are logged for one account at one address, and the most pairs of
account and address that are counted separately."""

_DENIALS_MAX_ALL: Final = 600
"""The most lines a minute in total: clients can invent any number of account names."""

_R: Final = Request

_TARGETS: Final = (
    "topic", "group", "groupName", "consumerGroup", "srcGroup", "destGroup", "queueId",
    "timestamp", "offset", "readable", "username", "subject", "policyType", "resource",
    "accessKey", "admin", "topicPerms", "groupPerms", "globalWhiteAddrs", "aclFileFullPath",
    "msgId", "clientId", "member", "drill", "fault", "ms", "isDryRun",
)  # fmt: skip
"""The request fields that name the changed object, as the audit log shows them. None is secret."""

_NAMES: Final = {code: name for name, code in vars(Request).items() if name.isupper()}


def sender_text(request: Question) -> str:
    """Return the sender of a request as one word: the account, if there are accounts, and the
    address."""
    account = "".join(request.account.split())
    return f"{account}@{request.peer.address}" if account else request.peer.address


def write_line(event: str, request: Question, **more: object) -> None:
    """Write one audit line about a request, with further fields (`more`)."""
    code = request.command.code
    fields = {
        "peer": request.peer.address,
        "account": request.ext.get(ACCESS_KEY, ""),
        "request": _NAMES.get(code, code),
        "code": code,
        **more,
    }
    _write(event, fields)


def _write(event: str, fields: dict[str, object]) -> None:
    _log.info("%s", format_audit_line(event, fields))


def log_operation(request: Question, reply: Reply) -> None:
    """Log an operator's request and its result."""
    code, remark = (0, "") if reply is HELD else (reply.code, reply.remark or "")
    command, ext = request.command, request.ext
    more: dict[str, object] = {name: ext[name] for name in _TARGETS if name in ext}
    if command.code == Request.UPDATE_BROKER_CONFIG:
        more["settings"] = _changed_setting_names(command)
    elif command.body and command.code not in (_R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER):
        more["body"] = command.body.decode("utf-8", "replace")
    more["result"] = code
    if code:
        more["reason"] = remark
    write_line("operation", request, **more)


def _changed_setting_names(request: Command) -> str:
    """Return the names of the settings that a request changes, without values: a mistyped name may
    be followed by a secret."""
    try:
        return ",".join(sorted(parse_java_properties(request.body.decode("utf-8", "replace"))))
    except ConfError:
        return "unreadable"


class DenialLog:
    """Logs refused requests: a limited number a minute for each account at each address, then the
    number of the suppressed ones."""

    def __init__(self) -> None:
        self._seldom = LogThrottle(
            lines_max=_DENIALS_MAX, span_ms=_DENIALS_SPAN_MS, kinds_max=_DENIED_MAX
        )
        self._everybody = LogThrottle(
            lines_max=_DENIALS_MAX_ALL, span_ms=_DENIALS_SPAN_MS, kinds_max=1
        )
        self.count = 0

    def log_denial(self, request: Question, reason: str, now_ms: int) -> None:
        """Count a refused request. Log it, unless too many of its account and address were logged
        within the minute."""
        self.count += 1
        account = request.ext.get(ACCESS_KEY, "")[:VALUE_SIZE_MAX]
        host = request.peer.address.rpartition(":")[0]
        if self._seldom.may_write(f"{account}@{host}", now_ms) and self._everybody.may_write(
            "", now_ms
        ):
            write_line("denial", request, reason=reason)

    def wake(self, now_ms: int) -> None:
        """Log how many refusals were suppressed."""
        for who, count in self._seldom.take_suppressed(now_ms):
            account, _, host = who.rpartition("@")
            _write("denials", {"peer": host, "account": account, "count": count})
        for _, count in self._everybody.take_suppressed(now_ms):
            _write("denials", {"peer": "everybody", "account": "", "count": count})

    def wake_at_ms(self) -> int | None:
        """The time at which there may be suppressed refusals to log."""
        found = [at for at in (self._seldom.wake_at_ms(), self._everybody.wake_at_ms()) if at]
        return min(found, default=None)
