"""Properties of messages that are ours and not RocketMQ's (docs/extensions.md)."""

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

MARKER: Final = "escrowMarker"
"""Where the outcome stands: a database's name, a colon, and the key of a row in it."""

EPOCH: Final = "escrowEpoch"
"""The query and the number of its batch that a half is written for: one decision ends them all."""

TOKEN: Final = "escrowToken"  # noqa: S105 - a name
"""Which attempt to write the batch a half belongs to."""

OPEN: Final = "escrowOpen"
"""On the answer to a check: its transaction is under way here still, so that nobody else can know
how it ends."""

RENEW: Final = "escrowRenew"
"""On a pop: what it finds is hidden for as long as its consumer is there."""

CARRIED: Final = "escrowCarried"
"""On a half that was stored again: queue offset, log offset and store time of its first copy,
colons between."""

OWNER: Final = "escrowOwner"
"""On a half of a transaction of several messages: a mark of the account that sent it."""

DEAD_LETTER: Final = "escrowDeadLetter"
"""On the copy of a dead letter that its group was given once more: queue id, queue offset and store
time of the letter, colons between."""

OUTCOMES: Final = "escrowOutcomes"
"""On an op record: how each transaction of the record ended, a letter each. RocketMQ reads
tag and body alone."""

ENDED: Final = "escrowEnded"
"""On an op record: the transactions of several messages that it ends, each with a letter and the
digest of its name."""

ENDED_BY: Final = "escrowEndedBy"
"""On an op record: the administrator that settled them, and why."""

MORE: Final = "escrowMore"
"""On an op record: another one follows for finals that were appended together. Only
behind the last one of them are all finals before it named."""

WANTS_ID: Final = "escrowWantsId"
"""A field of a send: its sender wants a signed id for the half."""
