"""Properties of messages that EscrowMQ adds to RocketMQ's (docs/extensions.md)."""

from __future__ import annotations

from typing import Final

TRANSACTION: Final = "escrowTransaction"
"""Id of the transaction to which a half belongs, if the transaction has several messages."""

MESSAGES: Final = "escrowMessages"
"""On a half that was given up: the number of messages of its transaction."""

DELAYED: Final = "escrowDelay"
"""Delay of a half's message, counted from the commit."""

REDONE: Final = "escrowRedone"
"""On a message that an operator stored again because the one of a committed half was gone."""

ORDER_KEY: Final = "escrowOrderKey"
"""The order key of a half, by which its queue is chosen at the commit."""

CHECKER: Final = "escrowChecker"
"""The name of the producer's checker that knows the outcome."""

MARKER: Final = "escrowMarker"
"""Where the outcome of a half is recorded: a database's name, a colon, and the key of a row in
it."""

EPOCH: Final = "escrowEpoch"
"""The query and batch number for which a half is written. One decision ends all halves with the
same value."""

TOKEN: Final = "escrowToken"  # noqa: S105 - a name
"""The attempt to write the batch, to which a half belongs."""

OPEN: Final = "escrowOpen"
"""On the answer to a check: the transaction is still open at this client, so no other can know its
outcome."""

RENEW: Final = "escrowRenew"
"""On a pop: the broker keeps its messages hidden as long as the consumer is connected."""

CARRIED: Final = "escrowCarried"
"""On a half that was stored again: queue offset, log offset and store time of its first copy,
separated by colons."""

OWNER: Final = "escrowOwner"
"""On a half of a transaction of several messages: a mark of the account that sent it."""

DEAD_LETTER: Final = "escrowDeadLetter"
"""On the copy of a redelivered dead letter: queue id, queue offset and store time of the dead
letter, separated by colons."""

OUTCOMES: Final = "escrowOutcomes"
"""On an op record: the outcome of each transaction of the record, a letter each. RocketMQ reads
only tag and body."""

ENDED: Final = "escrowEnded"
"""On an op record: the transactions of several messages that it ends, each with a letter and the
digest of its name."""

ENDED_BY: Final = "escrowEndedBy"
"""On an op record: the administrator that settled them, and the reason."""

MORE: Final = "escrowMore"
"""On an op record: the next op record continues this one. Only with the last of these records are
all final messages named that were appended together."""

WANTS_ID: Final = "escrowWantsId"
"""Field of a send with which its sender requests a signed id for the half."""

OUTCOME: Final = "escrowOutcome"
"""Field of the answer to an END: the state of the transaction."""

WANTS_SAFETY: Final = "escrowWantsSafety"
"""Field of a send with which its sender asks how safe the message is."""

DURABILITY: Final = "escrowDurability"
COPIES: Final = "escrowCopies"
"""Fields of an answer: whether a record is on the disk, and how many brokers have it."""
