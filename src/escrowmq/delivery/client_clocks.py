"""When clients' requests left them, by the broker's clock.

A client says when its pop was born, so that one that comes late, after a pause of the broker, is
not served any more. RocketMQ takes that as it is (PopMessageRequestHeader.isTimeoutTooMuch): a
client whose clock is behind gets nothing, and one whose clock is ahead waits for answers that come
too late. Here the difference of the clocks is told apart from the time on the way: it is that of
the request that came quickest."""

from __future__ import annotations


class ClientClocks:
    """How far each client's clock is behind the broker's, at most."""

    def __init__(self) -> None:
        self._behind_ms: dict[int, int] = {}
        """By connection. Below zero: ahead."""

    def born_ms(self, peer: int, told_ms: int, now_ms: int) -> int:
        """When a request left, by the broker's clock; now if it does not say."""
        if not told_ms:
            return now_ms
        behind_ms = now_ms - told_ms
        least_ms = min(behind_ms, self._behind_ms.get(peer, behind_ms))
        self._behind_ms[peer] = least_ms
        return told_ms + least_ms

    def forget(self, peer: int) -> None:
        """A client has disconnected, or its clock may have been set."""
        self._behind_ms.pop(peer, None)
