"""Translates the times in clients' requests to the broker's clock.

A client says when its pop was made. So a request that arrives late, after a pause of the broker, is
not served any more. RocketMQ compares this time with its own clock
(PopMessageRequestHeader.isTimeoutTooMuch). Then a client whose clock is behind gets nothing, and
one whose clock is ahead waits for answers that come too late.

Here, the smallest delay of any request of a client is taken as the difference of the two clocks.
The rest of a delay is time on the way.
"""

from __future__ import annotations


class ClientClocks:
    """Estimates how far each client's clock is behind the broker's."""

    def __init__(self) -> None:
        self._behind_ms: dict[int, int] = {}
        """The estimate of each connection, in ms; negative if the client's clock is ahead."""

    def sent_ms(self, peer: int, told_ms: int, now_ms: int) -> int:
        """Return when a request was sent, by the broker's clock; now if the request does not
        say."""
        if not told_ms:
            return now_ms
        behind_ms = now_ms - told_ms
        least_ms = min(behind_ms, self._behind_ms.get(peer, behind_ms))
        self._behind_ms[peer] = least_ms
        return told_ms + least_ms

    def forget_client(self, peer: int) -> None:
        """Forget the estimate of a client that has disconnected, or whose clock may have been
        set."""
        self._behind_ms.pop(peer, None)
