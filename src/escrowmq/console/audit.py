"""What the console's users did, and who was not let in, for the log `escrowmq.audit`
(docs/security.md): one line each, in the form of the brokers' own."""

from __future__ import annotations

import logging

from escrowmq.codec.key_value_line import audit_line

_log = logging.getLogger("escrowmq.audit")


def audit(event: str, **fields: object) -> None:
    """One line."""
    _log.info("%s", audit_line(f"console_{event}", fields))
