"""The connected peers, and the requests that the broker itself sends to them."""

from __future__ import annotations

from escrowmq.broker.outgoing_requests import OnAnswer, PeerCalls
from escrowmq.broker.peer import Peer


class Peers:
    """The connected peers by number: connections, and guests of in-process fronts."""

    def __init__(self, calls: PeerCalls) -> None:
        self.by_id: dict[int, Peer] = {}
        self._calls = calls

    def is_reachable(self, peer: int) -> bool:
        """Whether a peer is connected, and can be sent a request."""
        known = self.by_id.get(peer)
        return known is not None and not known.is_unreachable

    def send_one_way(self, peer: int, code: int, *, ext: dict[str, str], body: bytes = b"") -> None:
        """Send a client a one-way request."""
        known = self.by_id.get(peer)
        if known is not None:
            known.dialogue.send_request(code, self._calls.next_opaque(), ext, body, is_one_way=True)

    def send_request(
        self,
        peer: int,
        code: int,
        *,
        ext: dict[str, str] | None,
        body: bytes = b"",
        on_answer: OnAnswer,
        until_ms: int,
    ) -> None:
        """Send a client a request, and call `on_answer` with its answer or failure."""
        opaque = self._calls.next_opaque()
        self._calls.register_request(opaque, peer, on_answer, until_ms)
        known = self.by_id.get(peer)
        if known is not None:
            known.dialogue.send_request(code, opaque, ext, body, is_one_way=False)
