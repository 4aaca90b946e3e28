"""The connections to a master's replication port, of members and of strangers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from escrowmq.group.copy_stream import CopyRefused, CopyStream
from escrowmq.group.frames import Hello

CONNECTIONS_MAX: Final = 16


class CopyStreams:
    """Replication connections by the numbers of their peers."""

    def __init__(self) -> None:
        self.by_peer: dict[int, CopyStream] = {}
        self._addresses: dict[int, str] = {}

    def add(self, peer: int, address: str, stream: CopyStream) -> None:
        """Add a connection."""
        self._addresses[peer] = address
        self.by_peer[peer] = stream

    def remove(self, peer: int) -> CopyStream | None:
        """Remove a connection."""
        self._addresses.pop(peer, None)
        return self.by_peer.pop(peer, None)

    def address(self, peer: int) -> str:
        """The address of a peer; empty if it is not connected."""
        return self._addresses.get(peer, "")

    def member_streams(self) -> Iterator[tuple[int, Hello, CopyStream]]:
        """Yield the connections of members that have sent their names: peer, Hello and stream."""
        for peer, stream in self.by_peer.items():
            if stream.hello is not None:
                yield peer, stream.hello, stream

    def stream_of(self, member: str, incarnation: str) -> CopyStream | None:
        """Return the connection of a member."""
        for _, hello, stream in self.member_streams():
            if (hello.member, hello.incarnation) == (member, incarnation):
                return stream
        return None

    def previous_connections(self, peer: int, now_ms: int) -> list[int]:
        """Return the earlier connections of the member that has just named itself. Raises
        CopyRefused if one of them is alive and is another process: someone has copied the member's
        folder, and only one of the processes has what it reports. A process that has just been
        replaced looks the same at first: the new one is asked to try again."""
        stream = self.by_peer[peer]
        hello, found = stream.hello, []
        assert hello is not None
        for other, theirs, previous in self.member_streams():
            if other == peer or theirs.member != hello.member:
                continue
            ids = {each for each in (hello.start_id, theirs.start_id) if isinstance(each, str)}
            if len(ids) < 2 or not previous.is_alive(now_ms):
                found.append(other)
                continue
            stream.reject()
            raise CopyRefused(
                f"another process is member {hello.member} too, and is connected from "
                f"{self._addresses[other]}. If this folder was copied from it, move it away and "
                "start empty, under another name",
                is_name_taken=True,
                is_duplicate=previous.is_heard_after_claim(str(hello.start_id), now_ms),
            )
        return found

    def peer_to_close(self) -> int | None:
        """Return the connection to close before another one is added; None below the limit. It is
        the oldest unproved connection of the host that has the most of them, so that strangers do
        not keep members out."""
        if len(self.by_peer) < CONNECTIONS_MAX:
            return None
        hosts = {
            peer: self._addresses[peer].rpartition(":")[0]
            for peer, stream in self.by_peer.items()
            if stream.hello is None
        }
        counts = Counter(hosts.values())
        return max(hosts, key=lambda peer: counts[hosts[peer]], default=None)
