"""What operators did and who was refused, for the log `escrowmq.audit` (docs/security.md): one line
each, `event=operation` or `event=denial`, in the form of `codec/key_value_line`."""

from __future__ import annotations

import logging
from typing import Final

from escrowmq.base.answer import HELD, Reply
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.log_throttle import Seldom
from escrowmq.broker.asked import Question
from escrowmq.codec.java_properties import ConfError, parse_conf
from escrowmq.codec.key_value_line import VALUE_SIZE_MAX, audit_line
from escrowmq.codec.signature import ACCESS_KEY

_log = logging.getLogger("escrowmq.audit")

_DENIALS_MAX: Final = 10
_DENIALS_SPAN_MS: Final = 60_000
_DENIED_MAX: Final = 10_000
"""Lines a minute about one account at one address, and how many of these are told apart."""

_DENIALS_MAX_ALL: Final = 600
"""Lines a minute about everybody: names are cheap to make up."""

_R: Final = Request

_TARGETS: Final = (
    "topic", "group", "groupName", "consumerGroup", "srcGroup", "destGroup", "queueId",
    "timestamp", "offset", "readable", "username", "subject", "policyType", "resource",
    "accessKey", "admin", "topicPerms", "groupPerms", "globalWhiteAddrs", "aclFileFullPath",
    "msgId", "clientId",
)  # fmt: skip
"""Fields that say what was changed. A secret is in none of them."""

_NAMES: Final = {code: name for name, code in vars(Request).items() if name.isupper()}


def who(asked: Question) -> str:
    """Who asks, in a word: the address, and where accounts are on the account before it."""
    account = "".join(asked.account.split())
    return f"{account}@{asked.peer.address}" if account else asked.peer.address


def write(event: str, asked: Question, **more: object) -> None:
    """One line about a request."""
    code = asked.command.code
    fields = {
        "peer": asked.peer.address,
        "account": asked.ext.get(ACCESS_KEY, ""),
        "request": _NAMES.get(code, code),
        "code": code,
        **more,
    }
    _write(event, fields)


def _write(event: str, fields: dict[str, object]) -> None:
    _log.info("%s", audit_line(event, fields))


def note_operation(asked: Question, reply: Reply) -> None:
    """Write down what an operator asked for, and what came of it."""
    code, remark = (0, "") if reply is HELD else (reply.code, reply.remark or "")
    request, ext = asked.command, asked.ext
    more: dict[str, object] = {name: ext[name] for name in _TARGETS if name in ext}
    if request.code == Request.UPDATE_BROKER_CONFIG:
        more["settings"] = _settings(request)
    elif request.body and request.code not in (_R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER):
        more["body"] = request.body.decode("utf-8", "replace")
    more["result"] = code
    if code:
        more["reason"] = remark
    write("operation", asked, **more)


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

    def note(self, asked: Question, reason: str, now_ms: int) -> None:
        """A request was refused."""
        self.count += 1
        account = asked.ext.get(ACCESS_KEY, "")[:VALUE_SIZE_MAX]
        host = asked.peer.address.rpartition(":")[0]
        if self._seldom.says(f"{account}@{host}", now_ms) and self._everybody.says("", now_ms):
            write("denial", asked, reason=reason)

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
