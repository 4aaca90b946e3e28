"""Logs the actions of the console's users, and refused logins, in `escrowmq.audit`
(docs/security.md): one line each, in the format of the brokers' audit log."""

from __future__ import annotations

import logging

from escrowmq.codec.key_value_line import format_audit_line

_log = logging.getLogger("escrowmq.audit")


def write_audit_line(event: str, **fields: object) -> None:
    """Log one event."""
    _log.info("%s", format_audit_line(f"console_{event}", fields))
