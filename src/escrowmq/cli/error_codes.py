"""Describes errors by a code for programs and a hint for people. The codes are those of the
console's API."""

from __future__ import annotations

from typing import Final

from escrowmq import errors
from escrowmq.cli.printing import print_error_json, print_error_line
from escrowmq.errors import EscrowMQError

_KINDS: Final[tuple[tuple[type[EscrowMQError], str, str], ...]] = (
    (errors.PermissionDenied, "denied", "`escrowmq acl explain` says which rule decides"),
    (errors.NotSupported, "not_supported", "RocketMQ's brokers do not know such requests"),
    (errors.TopicNotFound, "no_topic", "`escrowmq topic list` lists those that there are"),
    (errors.GroupNotFound, "no_group", "`escrowmq group list` lists those that there are"),
    (errors.NotFound, "not_found", ""),
    (errors.NoMessage, "not_found", ""),
    (errors.RouteMissing, "no_route", "`escrowmq broker list` shows which brokers are there"),
    (errors.DataLost, "gone", ""),
    (errors.AlreadyCommitted, "already_committed", "its outcome is final"),
    (errors.AlreadyRolledBack, "already_rolled_back", "its outcome is final"),
    (errors.AlreadySettled, "already_settled", "its outcome is final"),
    (errors.ConsumerOffline, "consumer_offline", "`escrowmq group show` lists the members"),
    (errors.BrokerBusy, "busy", "try again a little later"),
    (errors.FlowControlled, "busy", "try again a little later"),
    (errors.ServiceNotAvailable, "unavailable", "`escrowmq doctor` says what is wrong"),
    (errors.ResponseError, "refused", ""),
    (errors.TransportError, "unreachable", "`escrowmq doctor` says what is wrong"),
    (errors.UsageError, "bad_request", ""),
)  # fmt: skip
"""Classes of errors, each with its code and hint. The first class that matches an error is used."""


def code_and_hint(error: EscrowMQError) -> tuple[str, str]:
    """Return the code of an error, and a hint; the hint may be empty."""
    for kind, code, hint in _KINDS:
        if isinstance(error, kind):
            return code, hint
    return "failed", ""


def print_error(error: EscrowMQError, *, where: str, is_json: bool) -> None:
    """Print an error on standard error: one line for people, or a JSON object."""
    text = " ".join(str(error).split())
    code, hint = code_and_hint(error)
    if is_json:
        print_error_json({"code": code, "message": text, "hint": hint})
        return
    has_advice = ";" in text  # the text itself says what to do
    print_error_line(f"{where}: {text} ({code})" if has_advice or not hint else
             f"{where}: {text} ({code}: {hint})")  # fmt: skip
