"""Properties of messages that are ours and no peer's (docs/extensions.md)."""

from __future__ import annotations

from typing import Final

TRANSACTION: Final = "escrowTransaction"
"""Which transaction a half belongs to, when it has several messages."""

MESSAGES: Final = "escrowMessages"
"""On what was given up: how many messages its transaction had."""

DELAYED: Final = "escrowDelay"
"""A half's wish for a later delivery counts from the commit on."""

ORDER_KEY: Final = "escrowOrderKey"
"""The queue is chosen by this key, at the commit."""

CHECKER: Final = "escrowChecker"
"""The name of the producer's check that knows the outcome."""

EPOCH: Final = "escrowEpoch"
"""The query and the number of its batch that a half is written for: one decision ends them all."""

TOKEN: Final = "escrowToken"
"""Which attempt to write the batch a half belongs to."""
