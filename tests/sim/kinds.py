"""What must happen in the worlds of a commit: what never does, proves nothing."""

from __future__ import annotations

from typing import Final

FAULTS: Final = frozenset({
    "END contradicted", "END doubled", "END late", "END lost", "END of a rival process",
    "END of an earlier life", "answer late", "answer lost", "answer unknown", "answer wrong",
    "broker paused", "clean restart", "clock set back", "clock set forward", "connection cut",
    "consumer crash", "disk full", "end undone", "group gone for good", "group offline",
    "clock days ahead", "half-open connection", "late bytes", "no descriptors",
    "popped and not acknowledged", "power lost", "process killed", "producer crash",
    "producer crash between halves", "request doubled", "slow disk", "sync fails",
})  # fmt: skip
"""What goes wrong."""

DONE: Final = frozenset({
    "bad input: a delay that cannot be kept", "bad input: a forged op record",
    "bad input: a forged signed id", "bad input: a half without a group",
    "bad input: a long transaction name", "bad input: an END at odd offsets",
    "bad input: an END of another group", "bad input: an END with an odd count",
    "bad input: an administrator from afar", "bad input: an answer of another group",
    "bad input: odd CHECK_IMMUNITY_TIME_IN_SECONDS", "bad input: odd escrowDelay",
    "bad input: odd escrowOrderKey", "bad input: odd escrowTransaction",
    "checks asked for by an administrator", "checks of the SDK: asked",
    "checks of the SDK: known", "checks that do not count: held open",
    "ends answered: committed", "ends answered: expired",
    "ends answered: rolled_back", "ends by signed id", "ends of the SDK: COMMIT",
    "ends of the SDK: ROLLBACK", "ends of the SDK: UNKNOWN", "ends refused: wrong count",
    "ends that the SDK did not hear confirmed", "halves sent by the SDK",
    "halves that the SDK gave up",
    "halves committed", "inputs and rounds without a descriptor", "halves given up",
    "halves given up for their age, as seen in audits",
    "halves parked at the end", "halves refused: code 14", "halves refused: code 2",
    "halves resumed", "halves rolled back", "keys rotated", "looks of an administrator",
    "messages consumed", "messages handled by the SDK", "messages popped",
    "messages whose handling failed", "offsets kept by the SDK", "queues that changed hands",
    "order keys followed", "resumed as at RocketMQ",
    "settled by an administrator, by message", "settled by an administrator, by signed id",
    "strange values: a batch", "strange values: a change of a receipt", "strange values: a half",
    "strange values: a heartbeat", "strange values: a message",
    "strange values: a message given back", "strange values: a pop", "strange values: a receipt",
    "strange values: a topic", "strange values: an offset", "strange values: popped",
    "syncs that had to wait for a descriptor", "signed ids given",
    "signed ids that ran out", "topics grown", "topics narrowed",
    "transactions of several messages seen whole",
})  # fmt: skip
"""What clients do, and what becomes of it."""
